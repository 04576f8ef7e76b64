"""The demo's pictures as inline SVG: timelines, loss curves, where a step's time goes."""

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 960
LEFT = 215  # room for the names of rows
RIGHT = 24

COMPUTE = ("#4878a8", "#86a9cb")  # by turns, so that microbatches can be told apart
MOVING = "#e8a33d"
WAITING = "#c8413b"
UPDATE = "#5f9e5a"
GRID = "#d9dde2"
LINES = {
    "reference": "#9aa3ad",
    "stock": "#c8413b",
    "lockstep": "#8a5a9e",
    "none": "#e8a33d",
    "lb-micro": "#5f9e5a",
    "lb-mini": "#2f5f94",
}


def legend(entries: Iterable[tuple[str, str]]) -> str:
    items = (
        f'<span class="key"><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in entries
    )
    return f'<p class="legend">{"".join(items)}</p>'


def _svg(height: float, parts: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _rectangle(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    hint = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" '
        f'fill="{fill}">{hint}</rect>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, extra: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {extra}/>'
    )


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from low to high, about as many as wanted."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / wanted))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= wanted)
    first = math.ceil(low / step - 1e-9)
    return [tick * step for tick in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1000 else f"{value:,.0f}"


def timelines(arms: Sequence[tuple[str, list[list[dict]]]]) -> str:
    """Each arm's ranks over the same steps, on one scale, without the time between two steps. An
    arm is its title and, a step, the ranks' records (see sft_trace.RankStep)."""
    row, gap, between, top = 20, 4, 20, 6
    spans = [[_span(step) for step in steps] for _, steps in arms]
    longest = max(sum(end - begin for begin, end in arm) for arm in spans)
    scale = (WIDTH - LEFT - RIGHT) / longest

    parts, y = [], float(top)
    for (title, steps), times in zip(arms, spans, strict=True):
        ranks = len(steps[0])
        lengths = [end - begin for begin, end in times]
        ends = list(itertools.accumulate(lengths))
        zeros = [end - drawn for (_, end), drawn in zip(times, ends, strict=True)]
        parts.append(_text(0, y + row * 0.7, title, extra='class="strong"'))
        for number in range(ranks):
            parts.append(_text(LEFT - 10, y + row * 0.7, f"rank {number}", "end"))
            for step, zero in zip(steps, zeros, strict=True):
                parts.extend(_rank_step(step[number], zero, scale, y, row))
            y += row + gap
        for drawn in ends:
            x = LEFT + drawn * scale
            y_top = y - ranks * (row + gap) - 2
            parts.append(_line(x, y_top, x, y, "#222", 'stroke-width="1.2"'))
        y += between
    bottom = y - between + 6
    axis = []
    for tick in ticks(0, longest / 1e9, 8):
        x = LEFT + tick * 1e9 * scale
        axis.append(_line(x, top, x, bottom))
        axis.append(_text(x, bottom + 15, f"{tick:g} s", "middle"))
    return _svg(bottom + 22, [*axis, *parts], "timeline of each rank")


def _span(step: list[dict]) -> tuple[int, int]:
    return min(rank["begin_ns"] for rank in step), max(rank["end_ns"] for rank in step)


def _rank_step(rank: dict, zero: int, scale: float, y: float, row: float) -> Iterable[str]:
    def bar(first: int, last: int, colour: str, title: str, inset: float = 0.0) -> str:
        x = LEFT + (first - zero) * scale
        return _rectangle(x, y + inset, (last - first) * scale, row - 2 * inset, colour, title)

    for index, micro in enumerate(rank["micros"]):
        samples = micro["lengths"]
        title = (
            f"microbatch of {len(samples)} samples, {sum(samples)} tokens, "
            f"{(micro['end_ns'] - micro['begin_ns']) / 1e6:.0f} ms"
        )
        yield bar(micro["begin_ns"], micro["end_ns"], COMPUTE[index % 2], title)
    yield bar(*rank["update"], UPDATE, "clipping and optimizer")
    for event in rank["events"]:
        moving_from = event["begin_ns"] + event["waited_ns"]
        if event["waited_ns"] and not event["beside"]:
            title = f"{event['name']}: waiting {event['waited_ns'] / 1e6:.1f} ms"
            yield bar(event["begin_ns"], moving_from, WAITING, title)
        title = f"{event['name']}: {event['bytes'] / 1e6:.1f} MB"
        inset = row / 3 if event["beside"] else 0.0
        yield bar(moving_from, event["end_ns"], MOVING, title, inset)


def curves(
    series: Sequence[tuple[str, str, Sequence[float]]],
    unit: str,
    *,
    height: int = 260,
    logarithmic: bool = False,
    floor: float = 0.0,
    limit: tuple[float, str] | None = None,
) -> str:
    """Lines over steps. A series is its name, its colour and one value a step; on a logarithmic
    axis values below `floor` are drawn at it."""
    left, top, bottom = 80, 12, 40
    values = [max(value, floor) for _, _, points in series for value in points]
    if limit:
        values.append(limit[0])
    transform = math.log10 if logarithmic else float
    low, high = transform(min(values)), transform(max(values))
    margin = (high - low) * 0.06 or 0.5
    low, high = low - margin, high + margin
    steps = max(len(points) for _, _, points in series)

    def place(index: float, value: float) -> tuple[float, float]:
        x = left + (WIDTH - left - RIGHT) * index / max(1, steps - 1)
        share = (transform(max(value, floor)) - low) / (high - low)
        return x, top + (height - top - bottom) * (1 - share)

    parts = []
    if logarithmic:
        marks = [
            (10.0**power, f"1e{power}") for power in range(math.ceil(low), math.floor(high) + 1)
        ]
    else:
        marks = [(tick, _number(tick)) for tick in ticks(low, high, 5)]
    for value, name in marks:
        _, y = place(0, value)
        parts += [_line(left, y, WIDTH - RIGHT, y), _text(left - 8, y + 4, name, "end")]
    for tick in (tick for tick in ticks(1, steps, 10) if tick == round(tick)):
        x, _ = place(tick - 1, values[0])
        parts.append(_text(x, height - bottom + 18, _number(tick), "middle"))
    parts.append(_text((left + WIDTH - RIGHT) / 2, height - 4, "step", "middle"))
    parts.append(
        _text(
            14,
            (top + height - bottom) / 2,
            unit,
            "middle",
            _turned(14, (top + height - bottom) / 2),
        )
    )
    if limit:
        _, y = place(0, limit[0])
        parts.append(_line(left, y, WIDTH - RIGHT, y, "#222", 'stroke-dasharray="6 4"'))
        parts.append(_text(WIDTH - RIGHT, y - 6, limit[1], "end"))
    for index, (name, colour, points) in enumerate(series):
        path = " ".join(
            f"{x:.1f},{y:.1f}" for x, y in (place(step, value) for step, value in enumerate(points))
        )
        thick = 'stroke-width="6" stroke-opacity="0.45"'
        dashes = f'stroke-width="1.8" stroke-dasharray="7 7" stroke-dashoffset="{index * 3.5}"'
        style = 'stroke-width="1.8"' if logarithmic else thick if index == 0 else dashes
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" {style}>'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _svg(height, parts, unit)


def _turned(x: float, y: float) -> str:
    return f'transform="rotate(-90 {x:.1f} {y:.1f})"'


def shares(arms: Sequence[tuple[str, Sequence[tuple[str, str, float]]]]) -> str:
    """A bar an arm, made of parts in milliseconds: (name, colour, length)."""
    row, between, top = 26, 12, 6
    longest = max(sum(part[2] for part in parts) for _, parts in arms)
    scale = (WIDTH - LEFT - RIGHT - 60) / longest
    bottom = top + len(arms) * (row + between)
    drawn = []
    for tick in ticks(0, longest, 8):
        x = LEFT + tick * scale
        drawn += [_line(x, top, x, bottom), _text(x, bottom + 15, f"{tick:g} ms", "middle")]
    for index, (title, parts) in enumerate(arms):
        y, x = top + index * (row + between), float(LEFT)
        drawn.append(_text(LEFT - 10, y + row * 0.68, title, "end"))
        for name, colour, length in parts:
            drawn.append(_rectangle(x, y, length * scale, row, colour, f"{name}: {length:.1f} ms"))
            if length * scale > 30:
                drawn.append(
                    _text(
                        x + length * scale / 2,
                        y + row * 0.68,
                        f"{length:.0f}",
                        "middle",
                        'fill="#fff"',
                    )
                )
            x += length * scale
        total = sum(part[2] for part in parts)
        drawn.append(_text(x + 6, y + row * 0.68, f"{total:.0f} ms", extra='class="strong"'))
    return _svg(bottom + 22, drawn, "where the time of a step goes")
