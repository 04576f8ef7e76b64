"""The three scaling rules, without ranks."""

import math

import pytest
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
