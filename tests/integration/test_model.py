"""The job against a plain model of the specification, over random rows and settings."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from activity_retention.events import BatchCommitted, Event, Started
from activity_retention.policy import USER_ACTIVITY
from activity_retention.sandbox.server import PrivateServer
from tests.conftest import cloned
from tests.database import Database

EVENTS, VIEWS, SESSIONS = USER_ACTIVITY.tables

# What ended_at may be, from the oldest to the youngest, in terms of the run's cutoff.
EXPIRED = (
    "'-infinity'",
    "'0044-03-15 00:00+00 BC'",
    "'1969-12-31 23:59:59.999999+00'",
    "cutoff - interval '35 days'",
    "cutoff - interval '1 hour'",
    "cutoff - interval '1 microsecond'",
)
YOUNG = (
    "cutoff",
    "cutoff + interval '1 microsecond'",
    "cutoff + interval '1 hour'",
    "cutoff + interval '35 days'",
    "'24989-01-01 00:00+00'",
    "'infinity'",
)


@dataclass(frozen=True)
class Session:
    """A session to be; in a `ring` its views and events refer to each other."""

    status: str
    anchor: str
    views: int
    events: int
    ring: bool
    id: UUID = field(default_factory=uuid4)

    @property
    def eligible(self) -> bool:
        return self.status == "Inactive" and self.anchor in EXPIRED


def sessions(anchors: st.SearchStrategy[str]) -> st.SearchStrategy[Session]:
    def make(status: str, anchor: st.SearchStrategy[str]) -> st.SearchStrategy[Session]:
        children = st.integers(0, 3)
        return st.builds(Session, st.just(status), anchor, children, children, st.booleans(), st.uuids())

    return make("Inactive", anchors) | make("Active", anchors | st.just("NULL"))


def datasets(anchors: st.SearchStrategy[str]) -> st.SearchStrategy[list[Session]]:
    return st.lists(sessions(anchors), max_size=20, unique_by=lambda session: session.id)


@dataclass(frozen=True)
class World:
    """The rows of one example, in a database that all examples share."""

    database: Database = field(repr=False)
    connection: psycopg.Connection[TupleRow] = field(repr=False)

    def fill(self, dataset: list[Session], cutoff: str) -> None:
        """Replaces all rows; `cutoff` is an SQL expression."""
        rings = [one.id for one in dataset if one.ring]
        connection = self.connection
        with connection.transaction():
            connection.execute("UPDATE user_activity.property_object_views SET apply_filter_event_id = NULL")
            for table in USER_ACTIVITY.tables:
                connection.execute(f"DELETE FROM {table}".encode())
            for one in dataset:
                connection.execute(
                    f"""
                    INSERT INTO user_activity.sessions (id, user_id, status, created_at, ended_at)
                    SELECT %s, %s, %s, now(), {one.anchor} FROM (SELECT {cutoff} AS cutoff) AS run
                    """.encode(),
                    [one.id, one.id, one.status],
                )
            connection.execute(
                """
                INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
                SELECT gen_random_uuid(), id, gen_random_uuid(), now()
                  FROM unnest(%s::uuid[], %s::int[]) AS one (id, views), generate_series(1, views)
                """,
                [[one.id for one in dataset], [one.views for one in dataset]],
            )
            connection.execute(
                """
                INSERT INTO user_activity.action_events (id, session_id, kind, occurred_at, property_object_view_id)
                SELECT gen_random_uuid(), one.id, 'click', now(),
                       (SELECT id FROM user_activity.property_object_views
                         WHERE session_id = one.id AND one.id = ANY (%s) LIMIT 1)
                  FROM unnest(%s::uuid[], %s::int[]) AS one (id, events), generate_series(1, events)
                """,
                [rings, [one.id for one in dataset], [one.events for one in dataset]],
            )
            connection.execute(
                """
                UPDATE user_activity.property_object_views AS view
                   SET apply_filter_event_id = event.id
                  FROM user_activity.action_events AS event
                 WHERE event.session_id = view.session_id AND view.session_id = ANY (%s)
                """,
                [rings],
            )

    def rows(self) -> dict[str, UUID]:
        """Every row of the three tables as text, and the session it belongs to."""
        query = """
            SELECT 'session ' || one::text, id FROM user_activity.sessions AS one
             UNION ALL
            SELECT 'view ' || one::text, session_id FROM user_activity.property_object_views AS one
             UNION ALL
            SELECT 'event ' || one::text, session_id FROM user_activity.action_events AS one
            """
        return dict(self.connection.execute(query).fetchall())

    def left(self) -> set[UUID]:
        return {row[0] for row in self.connection.execute("SELECT id FROM user_activity.sessions")}


def ages(dataset: list[Session]) -> list[int]:
    return sorted(EXPIRED.index(one.anchor) for one in dataset if one.eligible)


@pytest.fixture(scope="module")
def world(server: PrivateServer) -> Iterator[World]:
    with cloned(server) as database:
        yield World(database, database.connect())


@settings(max_examples=60, deadline=None)
@given(
    dataset=datasets(st.sampled_from(EXPIRED) | st.sampled_from(YOUNG)),
    retention=st.sampled_from(["1d", "30d", "365d", "10000d", "PT36H", "12m"]),
    batch_size=st.integers(1, 8),
    max_batches=st.integers(1, 8),
)
def test_a_run_does_what_the_model_says(
    world: World, dataset: list[Session], retention: str, batch_size: int, max_batches: int
) -> None:
    """The rows are made when the cutoff is fixed, so that its exact neighbours are among them."""
    before: dict[str, UUID] = {}

    def fill(event: Event) -> None:
        if isinstance(event, Started):
            world.fill(dataset, f"timestamptz '{event.cutoff}'")
            before.update(world.rows())

    result = world.database.run(
        watch=fill,
        retention_period=retention,
        allow_short_retention="true",
        batch_size=str(batch_size),
        max_batches_per_run=str(max_batches),
    )

    eligible = ages(dataset)
    needed = ceil(len(eligible) / batch_size)
    capped = needed >= max_batches
    deleted = eligible[: batch_size * max_batches]
    assert result.outcome == "completed"
    assert result.stop_reason == ("max_batches" if capped else "empty")
    assert result.has_more is capped
    assert result.batches_processed == min(needed, max_batches)
    assert not result.left_locked

    left = world.left()
    gone = [one for one in dataset if one.id not in left]
    assert all(one.eligible for one in gone)
    assert ages(gone) == deleted
    assert world.rows() == {text: session for text, session in before.items() if session in left}
    assert result.deleted == {
        SESSIONS: len(gone),
        VIEWS: sum(one.views for one in gone),
        EVENTS: sum(one.events for one in gone),
    }


# Nothing here comes of age between two runs.
STILL = [anchor for anchor in EXPIRED + YOUNG if "microsecond" not in anchor and anchor != "cutoff"]


@settings(max_examples=25, deadline=None)
@given(
    dataset=datasets(st.sampled_from(STILL)),
    batch_size=st.integers(1, 5),
    max_batches=st.integers(1, 4),
)
def test_runs_until_nothing_is_left_drain_exactly_what_was_eligible_oldest_first(
    world: World, dataset: list[Session], batch_size: int, max_batches: int
) -> None:
    """R-POST-1, R-RETRY-1."""
    world.fill(dataset, "now() - interval '365 days'")
    before = world.rows()
    eligible = ages(dataset)

    def look(event: Event) -> None:
        left = world.left()
        remaining = ages([one for one in dataset if one.id in left])
        assert remaining == eligible[len(eligible) - len(remaining) :]
        if isinstance(event, Started):
            assert event.backlog == len(remaining)
        if isinstance(event, BatchCommitted):
            assert 1 <= event.deleted[SESSIONS] <= batch_size

    deleted = 0
    for _ in range(ceil(len(eligible) / batch_size) // max_batches + 1):
        result = world.database.run(watch=look, batch_size=str(batch_size), max_batches_per_run=str(max_batches))
        assert (result.outcome, result.failure) == ("completed", None)
        deleted += result.deleted[SESSIONS]
    assert result.has_more is False
    assert deleted == len(eligible)

    kept = {one.id for one in dataset if not one.eligible}
    assert world.rows() == {text: session for text, session in before.items() if session in kept}
    again = world.database.run()
    assert (again.rows, again.batches_processed, again.has_more) == (0, 0, False)
