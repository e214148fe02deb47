"""What `plan` and a run's start say when counting would take too long."""

import pytest

from activity_retention import plan, preparation
from activity_retention.plan import read_plan
from activity_retention.sandbox.sample import load_expired
from activity_retention.session import open_session
from tests.database import Database


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that would need more than five seconds, scaled down."""
    monkeypatch.setattr(preparation, "_COUNT_SECONDS", "1ms")


@pytest.fixture
def large(database: Database) -> Database:
    with database.connect() as connection:
        load_expired(connection, 60_000, views_per_session=1, events_per_session=1)
    return database


@pytest.mark.usefixtures("hurried")
def test_a_count_that_takes_too_long_is_estimated_and_says_so(large: Database) -> None:
    """`backlogExact` is false, and the run goes on all the same."""
    result = large.run(max_batches_per_run="1", batch_size="10")

    assert (result.outcome, result.backlog_exact) == ("completed", False)
    assert result.eligible_backlog == pytest.approx(60_000, rel=0.2)


@pytest.mark.usefixtures("hurried")
def test_a_plan_of_estimates_marks_them(large: Database) -> None:
    found = _plan(large)

    assert not any(count.exact for count in found.rows.values())
    for count in found.rows.values():
        assert count.rows == pytest.approx(60_000, rel=0.2)


def test_ages_of_many_roots_are_drawn_from_a_sample(large: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_SAMPLED_ROOTS", 6_000)

    histogram = _plan(large).histogram

    assert not histogram.exact
    assert sum(bar.roots for bar in histogram.bars) == pytest.approx(60_000, rel=0.3)
    assert all(bar.expired for bar in histogram.bars if bar.roots)


def test_infinite_anchors_are_counted_and_not_drawn(database: Database) -> None:
    database.session(ended="400 days")
    database.execute("UPDATE user_activity.sessions SET ended_at = '-infinity'")

    found = _plan(database)

    assert (found.survey.backlog.count, found.survey.backlog.oldest) == (1, "-infinity")
    assert found.histogram.bars == ()


def _plan(database: Database) -> plan.Plan:
    settings = database.settings()
    with open_session(
        settings.conninfo(),
        application_name="test",
        statement_timeout=settings.job.batch_timeout,
        lock_timeout=settings.job.lock_timeout,
        read_only=True,
    ) as session:
        return read_plan(session.connection, settings.job)
