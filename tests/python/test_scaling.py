"""The three scaling rules, without ranks."""

import math

import pytest
from headrace.data import Plan, plan
from headrace.errors import OperationError
from headrace.scaling import LossAccount, Rule


def test_a_global_count_divides_before_autograd_and_settle_only_sums() -> None:
    account = LossAccount(tokens=8)
    assert account.factor(None, None) == 1 / 8
    account.add(6.0)
    outcome = account.settle(account.rules, loss_sum=20.0, weight=0.0, world_size=4)
    assert (outcome.scale, outcome.loss, outcome.tokens) == (1.0, 2.5, 8.0)
    assert not outcome.flagged


def test_counts_by_microbatch_divide_at_settle() -> None:
    account = LossAccount()
    assert account.factor(None, 3) == 1.0
    assert account.factor(None, 2) == 1.0
    assert account.weight == 5
    outcome = account.settle(account.rules, loss_sum=30.0, weight=10.0, world_size=4)
    assert (outcome.scale, outcome.loss, outcome.samples) == (0.1, 3.0, 10.0)


def test_a_plain_backward_keeps_one_over_n_and_knows_no_loss() -> None:
    account = LossAccount()
    account.note_plain()
    outcome = account.settle(account.rules, 0.0, 0.0, world_size=4)
    assert (outcome.scale, outcome.loss) == (0.25, None)


@pytest.mark.parametrize("rules", [Rule.plain, Rule.counted_tokens, Rule.given_samples])
def test_an_idle_rank_settles_as_its_peers_do(rules: Rule) -> None:
    busy, idle = LossAccount(), LossAccount()
    busy.rules = rules
    busy.given = idle.given = 5.0 if rules == Rule.given_samples else None
    assert busy.settle(rules, 3.0, 6.0, 2) == idle.settle(rules, 3.0, 6.0, 2)


@pytest.mark.parametrize("account", [LossAccount(tokens=0), LossAccount(samples=0), LossAccount()])
def test_no_valid_token_anywhere_is_flagged_zero_even_if_the_loss_was_nan(
    account: LossAccount,
) -> None:
    counts = (None, None) if account.given is not None else (0, None)
    assert math.isfinite(account.factor(*counts))
    outcome = account.settle(account.rules, math.nan, 0.0, world_size=2)
    assert (outcome.loss, outcome.scale, outcome.flagged) == (0.0, 0.0, True)


def test_mixing_rules_is_refused_and_names_both() -> None:
    account = LossAccount(tokens=4)
    with pytest.raises(OperationError, match=r"minibatch\(tokens=...\).*one minibatch"):
        account.factor(3, None)
    with pytest.raises(OperationError, match=r"loss.backward\(\) and engine.minibatch"):
        account.note_plain()
    account = LossAccount()
    account.factor(3, None)
    with pytest.raises(OperationError, match="tokens=.*samples="):
        account.factor(None, 1)
    with pytest.raises(OperationError, match=r"loss.backward\(\)"):
        account.settle(Rule.plain | Rule.counted_tokens, 1.0, 1.0, 2)
    with pytest.raises(OperationError, match="give one of the two"):
        LossAccount(tokens=1, samples=1)
    with pytest.raises(OperationError, match="give one of the two"):
        account.factor(1, 1)


def test_a_backward_without_any_count_says_where_to_give_one() -> None:
    with pytest.raises(OperationError, match=r"minibatch\(tokens=...\) or .*tokens=..."):
        LossAccount().factor(None, None)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf])
def test_counts_must_be_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(OperationError, match=f"tokens={bad}"):
        LossAccount(tokens=bad)
    with pytest.raises(OperationError, match=f"samples={bad}"):
        LossAccount().factor(None, bad)


def test_tokens_here_and_samples_there_are_refused_at_settle() -> None:
    tokens, samples = LossAccount(tokens=5), LossAccount(samples=5)
    with pytest.raises(OperationError, match=r"minibatch\(tokens=...\) and .*samples=..."):
        tokens.settle(tokens.rules | samples.rules, 1.0, 0.0, 2)


def token_loss(sample: int, token: int) -> float:
    return 1.0 + 0.1 * sample + 0.001 * token * token


def sum_of(sample: int, begin: int, tokens: int) -> float:
    return sum(token_loss(sample, token) for token in range(begin, begin + tokens))


def trained(made: Plan, lengths: list[int], by: str, given: bool) -> tuple[float, float | None]:
    """The gradient (of a factor before all losses) and the loss that settle makes of the plan's
    ranks, where the bracket was given the global count, or else each backward its own."""
    total = {"tokens": made.tokens, "samples": len(lengths)}[by]
    accounts = [LossAccount(**{by: total}) if given else LossAccount() for _ in made.ranks]
    gradient = 0.0
    for account, microbatches in zip(accounts, made.ranks, strict=True):
        for micro in microbatches:
            loss_sum = count = 0.0
            for piece in micro.pieces:
                parts = 1 if by == "tokens" else lengths[piece.sample]
                loss_sum += sum_of(piece.sample, piece.begin, piece.tokens) / parts
                count += piece.tokens / parts
            counts = {"tokens": None, "samples": None} | ({} if given else {by: count})
            gradient += account.factor(**counts) * loss_sum
            account.add(loss_sum)
    rules = Rule.none
    for account in accounts:
        rules |= account.rules
    loss_sum = sum(account.loss_sum for account in accounts)
    weight = sum(account.weight for account in accounts)
    (outcome,) = {account.settle(rules, loss_sum, weight, len(accounts)) for account in accounts}
    return gradient * outcome.scale, outcome.loss


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("oversize", "cap"), [("error", 60), ("split", 20)])
def test_token_and_sample_means_hold_for_ranks_with_unequal_counts(
    oversize: str, cap: int, given: bool
) -> None:
    lengths = [60, 9, 8, 7, 50, 6, 5, 3]
    made = plan(lengths, 5, cap, "none", oversize=oversize)
    assert not made.equal_counts
    sums = [sum_of(sample, 0, length) for sample, length in enumerate(lengths)]
    token_mean = sum(sums) / sum(lengths)
    sample_mean = sum(s / n for s, n in zip(sums, lengths, strict=True)) / len(lengths)
    assert abs(token_mean - sample_mean) > 0.1
    assert trained(made, lengths, "tokens", given) == pytest.approx((token_mean, token_mean))
    assert trained(made, lengths, "samples", given) == pytest.approx((sample_mean, sample_mean))
