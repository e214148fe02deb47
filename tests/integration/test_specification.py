"""The tests that the specification demands (R-TEST), under their names."""

from threading import Thread

from activity_retention.events import BatchCommitted, Event
from activity_retention.result import RunResult
from tests.database import Database


def test_empty_batch(database: Database) -> None:
    """R-TEST Empty batch: nothing past the cutoff is a success that does nothing."""
    database.session(ended="300 days", views=1, events=1)

    result = database.run()

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "empty", False)
    assert (result.rows, result.batches_processed, result.eligible_backlog) == (0, 0, 0)
    assert database.counts() == (1, 1, 1)


def test_fk_order_deletes_events_then_views_then_sessions(database: Database) -> None:
    """R-TEST FK order, R-ALG-4: row triggers log the order in which rows really leave."""
    database.execute("CREATE TABLE public.departures (n bigint GENERATED ALWAYS AS IDENTITY, name text)")
    database.execute(
        """
        CREATE FUNCTION public.log_departure() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.departures (name) VALUES (TG_TABLE_NAME);
            RETURN OLD;
        END $$
        """
    )
    for table in ("sessions", "property_object_views", "action_events"):
        database.execute(
            f"CREATE TRIGGER log BEFORE DELETE ON user_activity.{table} "
            "FOR EACH ROW EXECUTE FUNCTION public.log_departure()"
        )
    for _ in range(3):
        database.session(views=3, events=5)

    result = database.run()

    assert result.outcome == "completed"
    order = [name for (name,) in database.execute("SELECT name FROM public.departures ORDER BY n")]
    assert order == ["action_events"] * 15 + ["property_object_views"] * 9 + ["sessions"] * 3


def test_threshold(database: Database) -> None:
    """R-TEST Threshold: a second past the cutoff goes, a second before it and any Active session stay."""
    past = database.session(ended="365 days 1 second")
    young = database.session(ended="364 days 23:59:59", views=1)
    active = database.session(ended="900 days", status="Active", views=1)
    open_end = database.session(ended=None, status="Active")

    result = database.run()

    assert result.deleted[result.policy.root] == 1
    left = {row[0] for row in database.execute("SELECT id FROM user_activity.sessions")}
    assert left == {young, active, open_end}
    assert past not in left


def test_a_session_that_ended_exactly_at_the_cutoff_stays(database: Database) -> None:
    """R-ALG-3: the comparison is strict. The server's clock moves on, so the retention period is fixed instead:
    the row is moved to the cutoff of the run while it is under way."""
    session = database.session(ended="300 days")

    def move_to_cutoff(event: Event) -> None:
        if cutoff := getattr(event, "cutoff", None):
            database.execute("UPDATE user_activity.sessions SET ended_at = %s::timestamptz", [cutoff])

    result = database.run(watch=move_to_cutoff)

    assert result.outcome == "completed"
    assert database.value("SELECT id FROM user_activity.sessions") == session


def test_stats_kept(database: Database) -> None:
    """R-TEST Stats kept, R-SLO-3: the aggregate outlives the views that it counted."""
    database.session(views=4, events=1)
    database.execute(
        """
        INSERT INTO user_activity.property_object_view_stats
        SELECT property_object_id, count(*), sum(duration)
          FROM user_activity.property_object_views GROUP BY property_object_id
        """
    )
    query = "SELECT stats::text, xmin::text FROM user_activity.property_object_view_stats AS stats ORDER BY 1"
    before = database.execute(query)

    result = database.run()

    assert (result.outcome, database.counts()) == ("completed", (0, 0, 0))
    assert len(before) == 4
    assert database.execute(query) == before


def test_partial_failure(database: Database) -> None:
    """R-TEST Partial failure: batches before the failing one stay committed, the next run takes the rest."""
    database.expired(10)
    (poison,) = database.execute("SELECT id FROM user_activity.sessions ORDER BY ended_at OFFSET 6 LIMIT 1")[0]
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [poison])

    first = database.run(batch_size="2")

    assert (first.outcome, first.stop_reason, first.has_more) == ("failed", "failed", True)
    assert first.batches_processed == 3
    assert database.count("sessions") == 4
    assert first.failure is not None
    assert first.failure.kind == "poison"
    assert str(poison) in first.failure.batch_ids

    database.execute("DELETE FROM public.notes")
    second = database.run(batch_size="2")

    assert (second.outcome, second.batches_processed, database.count("sessions")) == ("completed", 2, 0)


def test_duplicate_run(database: Database) -> None:
    """R-TEST Duplicate run: the second of two is refused the lock; each row is deleted exactly once."""
    database.expired(20)
    inner: list[RunResult] = []

    def run_another(event: Event) -> None:
        if isinstance(event, BatchCommitted) and not inner:
            other = Thread(target=lambda: inner.append(database.run()))
            other.start()
            other.join()

    outer = database.run(watch=run_another, batch_size="5")

    assert (inner[0].outcome, inner[0].stop_reason, inner[0].has_more) == ("skipped", "locked", None)
    assert inner[0].rows == 0
    assert (outer.outcome, outer.rows, database.count("sessions")) == ("completed", 20, 0)


def test_cancellation(database: Database) -> None:
    """R-TEST Cancellation: a stop between batches leaves the committed ones and no half of another."""
    for _ in range(10):
        database.session(views=1, events=2)
    asked: list[float] = []

    def stop_at_the_fourth_batch(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) > 3

    result = database.run(wait=stop_at_the_fourth_batch, batch_size="2")

    assert (result.outcome, result.stop_reason, result.has_more) == ("cancelled", "cancelled", True)
    assert result.batches_processed == 3
    assert database.counts() == (4, 4, 8)
