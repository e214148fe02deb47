"""A run's bounds (R-RUN-3)."""

import pytest

from activity_retention.budget import Budget

BUDGET = Budget(max_batches=3, deadline=100.0)


@pytest.mark.parametrize(
    ("batches", "now", "reason"),
    [
        (0, 0.0, None),
        (2, 99.999, None),
        (3, 0.0, "max_batches"),
        (4, 0.0, "max_batches"),
        (0, 100.0, "max_duration"),
        (0, 100.001, "max_duration"),
    ],
)
def test_a_batch_starts_only_within_both_bounds(batches: int, now: float, reason: str | None) -> None:
    assert BUDGET.stop(batches, now) == reason


@pytest.mark.parametrize(
    ("wanted", "now", "granted"),
    [
        (60.0, 0.0, 60.0),
        (60.0, 40.0, 60.0),
        (60.0, 90.0, 10.0),
    ],
)
def test_a_statement_gets_no_more_than_the_run_has_left(wanted: float, now: float, granted: float) -> None:
    """Case A2."""
    assert BUDGET.clamp(wanted, now) == granted


@pytest.mark.parametrize("now", [100.0, 250.0])
def test_a_statement_never_gets_zero_seconds_since_that_would_mean_no_limit(now: float) -> None:
    assert 0 < BUDGET.clamp(60.0, now) <= 0.001
