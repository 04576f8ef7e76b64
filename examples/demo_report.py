"""The demo's report: one self-contained HTML page, pictures inline, nothing loaded."""

from html import escape

import demo_figures as figures

SHOWN_STEPS = 4

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; background: #fff; max-width: 980px;
       margin: 32px auto; padding: 0 16px }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 36px 0 6px }
p { margin: 6px 0 10px; max-width: 80ch } .dim { color: #5b6775 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; display: block }
svg .strong { font-weight: 600 }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0 }
.card { flex: 1 1 200px; border: 1px solid #d9dde2; border-radius: 8px; padding: 12px 14px }
.card b { display: block; font-size: 24px } .card span { color: #5b6775; font-size: 13px }
.wrong { border: 1px solid #c8413b; border-radius: 8px; padding: 10px 14px; color: #8d1f1a }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { padding: 6px 8px; text-align: right; border-bottom: 1px solid #e6e9ed }
th { font-weight: 600; vertical-align: bottom } th:first-child, td:first-child { text-align: left }
.legend { margin: 4px 0 8px } .key { margin-right: 18px; white-space: nowrap }
.key i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 6px;
         vertical-align: -1px }
dt { font-weight: 600; margin-top: 8px } dd { margin: 0 0 4px; max-width: 80ch }
"""


def write_report(results: dict, titles: dict[str, str], traces: dict[str, list[dict]]) -> str:
    """`results` is what demo.json holds; `traces` the steps that count, as sft.py writes them."""
    arms = results["arms"]
    parts = [
        "<h1>Headrace demo</h1>",
        f'<p class="dim">{escape(_setting_line(results))}</p>',
        *(f'<p class="wrong">{escape(problem)}</p>' for problem in results["problems"]),
        _cards(results),
        "<h2>The arms</h2>",
        _table(arms, titles),
        "<h2>What each rank did</h2>",
        _timelines(titles, traces),
        "<h2>Where a step's time goes</h2>",
        _shares(arms, titles),
        "<h2>Loss</h2>",
        _losses(arms, titles),
        "<h2>Prediction</h2>",
        _prediction(results),
        "<h2>How it was measured</h2>",
        _method(results),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Headrace demo</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _setting_line(results: dict) -> str:
    settings, machine = results["settings"], results["machine"]
    return (
        f"Llama of {settings['parameters'] / 1e6:.1f} million fp32 parameters, "
        f"{settings['ranks']} ranks of one thread, {settings['samples_per_minibatch']} samples a "
        f"step cut at {settings['cap_tokens']:,} tokens; {settings['steps']} consecutive steps "
        f"after {settings['warm_up_steps']} of warm-up. {machine['processor']}, {machine['cores']} "
        f"cores, torch {machine['torch']}."
    )


def _cards(results: dict) -> str:
    arms = results["arms"]
    mini, stock = arms["lb-mini"], arms["stock"]
    worst = max(arm["loss_difference"]["largest"] for arm in arms.values())
    cards = (
        (
            f"{mini['speedup']:.2f}×",
            f"lb-mini over none; predicted {mini['predicted_speedup']:.2f}×",
        ),
        (f"{mini['speedup_over_stock']:.2f}×", "lb-mini over stock FSDP2 with lb-micro"),
        (
            f"{mini['waiting_ms']:.0f} ms",
            f"waiting for other ranks a step in lb-mini; stock {stock['waiting_ms']:.0f} ms",
        ),
        (f"{worst:.0e}", "largest relative loss difference to one process, any arm, any step"),
    )
    inner = (
        f'<div class="card"><b>{escape(number)}</b><span>{escape(text)}</span></div>'
        for number, text in cards
    )
    return f'<div class="cards">{"".join(inner)}</div>'


def _table(arms: dict, titles: dict[str, str]) -> str:
    heads = (
        "arm",
        "step<br>ms",
        "tokens/s",
        "waiting<br>ms a rank",
        "moved<br>MB a step",
        "memory<br>MB a rank",
        "loss off reference<br>first / largest",
        "speedup<br>over none",
        "predicted",
        "speedup<br>over stock",
        "a step: median<br>(quartiles)",
    )
    rows = []
    for name, arm in arms.items():
        difference, predicted = arm["loss_difference"], arm["predicted_speedup"]
        low, median, high = arm["over_stock_quartiles"]
        cells = (
            escape(titles[name]),
            f"{arm['step_ms']:.0f}",
            f"{arm['tokens_per_s']:,.0f}",
            f"{arm['waiting_ms']:.0f}",
            f"{arm['bytes'] / 1e6:.0f}",
            f"{arm['memory'] / 1e6:.0f}",
            f"{difference['first']:.0e} / {difference['largest']:.0e}",
            f"{arm['speedup']:.2f}",
            "–" if predicted is None else f"{predicted:.2f}",
            f"{arm['speedup_over_stock']:.2f}",
            f"{median:.2f} ({low:.2f}–{high:.2f})",
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        '<p class="dim">The reference is one process with one thread, without FSDP2, one sample at '
        "a time: it is there for its loss, not for its speed.</p>"
    )


def _timelines(titles: dict[str, str], traces: dict[str, list[dict]]) -> str:
    shown = [
        (titles[name], [step["ranks"] for step in steps[:SHOWN_STEPS]])
        for name, steps in traces.items()
        if name != "reference"
    ]
    count = len(shown[0][1])
    return (
        f"<p>The first {count} of the steps that count, the same samples in every arm, one scale. "
        "A black line ends a step; the turns of other arms in between are left out.</p>"
        + figures.legend(
            (
                ("forward and backward, a shade a microbatch", figures.COMPUTE[0]),
                ("waiting for another rank", figures.WAITING),
                ("moving parameters and gradients", figures.MOVING),
                ("clipping and optimizer", figures.UPDATE),
            )
        )
        + figures.timelines(shown)
    )


def _shares(arms: dict, titles: dict[str, str]) -> str:
    bars = []
    for name, arm in arms.items():
        known = arm["waiting_ms"] + arm["moving_ms"] + arm["update_ms"]
        bars.append(
            (
                titles[name],
                (
                    ("compute", figures.COMPUTE[0], max(0.0, arm["step_ms"] - known)),
                    ("moving", figures.MOVING, arm["moving_ms"]),
                    ("clipping and optimizer", figures.UPDATE, arm["update_ms"]),
                    ("waiting", figures.WAITING, arm["waiting_ms"]),
                ),
            )
        )
    return (
        "<p>Mean step, mean over ranks.</p>"
        + figures.legend(
            (
                ("compute, and copies inside FSDP2", figures.COMPUTE[0]),
                ("moving parameters and gradients", figures.MOVING),
                ("clipping and optimizer", figures.UPDATE),
                ("waiting for another rank", figures.WAITING),
            )
        )
        + figures.shares(bars)
    )


def _losses(arms: dict, titles: dict[str, str]) -> str:
    order = ["reference", *(name for name in arms if name != "reference")]
    keys = [(titles[name], figures.LINES[name]) for name in order]
    curves = [(titles[name], figures.LINES[name], arms[name]["losses"]) for name in order]
    differences = [
        (titles[name], figures.LINES[name], arms[name]["loss_differences"])
        for name in order
        if name != "reference"
    ]
    return (
        "<p>Mean cross-entropy of a predicted byte, over the whole minibatch. The curves lie on "
        "each other, as they must: every arm takes the same gradient.</p>"
        + figures.legend(keys)
        + figures.curves(curves, "loss, nats a token")
        + "<p>Relative difference to the reference, warm-up steps included; equal losses are drawn "
        "at 1e-9. What is left is the order in which fp32 numbers are added.</p>"
        + figures.curves(
            differences,
            "relative difference",
            logarithmic=True,
            floor=1e-9,
            limit=(1e-4, "limit 1e-4"),
        )
    )


def _prediction(results: dict) -> str:
    costs, mini = results["costs"], results["arms"]["lb-mini"]
    reached = mini["speedup"] / mini["predicted_speedup"]
    return (
        "<p>Costs were measured with this model and machine just before the arms, every rank busy, "
        f"transfers included: a sample of s tokens costs {costs['quadratic'] * 1e6:.1f}·10⁻⁶·s² + "
        f"{costs['linear']:.3f}·s ms, a microbatch {costs['per_microbatch']:.1f} ms on top. "
        "Balancing uses these, and the prediction adds them up: for Headrace the costliest rank of "
        "each minibatch, for stock the costliest rank of each microbatch, since there all ranks "
        "meet in every layer. It leaves out publishing, settling and the optimizer, and for stock "
        "what its own transfers cost beyond Headrace's.</p>"
        f"<p>Predicted for lb-mini over none: {mini['predicted_speedup']:.3f}×; measured: "
        f"{mini['speedup']:.3f}×, {reached:.0%} of it.</p>"
    )


def _method(results: dict) -> str:
    terms = (
        (
            "step",
            "From the first microbatch's data to the end of the optimizer, on the slowest rank; "
            "the mean of all steps that count. tokens/s are predicted tokens over the same time.",
        ),
        (
            "waiting",
            "Stock: in each collective, the time until the last rank has entered it. Headrace: the "
            "time blocked on another rank, as its own trace tells, nearly all of it in the one "
            "settle of a minibatch. Mean over ranks. Waiting inside gradient clipping is not in "
            "it.",
        ),
        (
            "moved",
            "Gathered parameters, reduced gradients and published shards of all ranks together, "
            "own shard and padding included; what FSDP2 copies in and out of its buffers besides "
            "is not counted.",
        ),
        (
            "memory",
            "Peak resident memory of the largest rank; Python, torch and touched shared memory "
            "too.",
        ),
        (
            "machine",
            "Ranks need a core each: other work on the machine moves all times. demo.json has each "
            "arm's processor time too (cpu_ms), which it moves less.",
        ),
        (
            "speedup",
            "Ratio of mean step times, so of all steps together; beside it each step's ratio to "
            "stock's step of the same round. All arms run at once, each in processes of its own, "
            "and take turns: the first step of every arm, then the second. Arms that wait for "
            "their turn are blocked; of them all, gloo's threads that look around every 10 ms take "
            "some 2 % of a core.",
        ),
        (
            "samples",
            "Without --data: top-level functions and classes of Python's standard library, bytes "
            "as tokens, every arm the same samples in the same steps.",
        ),
    )
    entries = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in terms)
    return f'<dl>{entries}</dl><p class="dim">The whole demo took {results["seconds"]:.0f} s.</p>'
