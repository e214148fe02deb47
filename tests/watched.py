"""Runs that are watched, and trouble for them."""

from collections.abc import Callable, Mapping
from threading import Event as Flag
from typing import get_args

from prometheus_client import generate_latest
from psycopg import Connection
from psycopg.rows import TupleRow

from activity_retention.events import Event
from activity_retention.job import ActivityRetentionJob
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.metrics import RunMetrics
from activity_retention.result import Outcome
from tests.database import TABLES, Database

OUTCOMES = get_args(Outcome)


class Watched:
    """Runs over a database, one after the other, and the series that they leave."""

    def __init__(self, database: Database, **overrides: object) -> None:
        self.database = database
        self.settings = database.settings(**overrides)
        self.metrics = RunMetrics(self.settings.job)

    def run(
        self,
        wait: Callable[[float], bool] | None = None,
        watch: Callable[[Event], None] = lambda _: None,
        changed: Mapping[str, str] | None = None,
    ) -> str:
        """The outcome of one run, with the settings of all or, for once, some `changed` ones."""

        def both(event: Event) -> None:
            self.metrics(event)
            watch(event)

        settings = self.database.settings(**changed) if changed else self.settings
        return ActivityRetentionJob(settings, watch=both).run(wait=wait or Flag().wait).outcome

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"activity_retention_{name}", {"policy": "user-activity", **labels}
        )

    def deleted(self) -> tuple[float | None, ...]:
        """Sessions, views and events, by the counters of the specification."""
        return tuple(self.value(f"deleted_{table}_total") for table in TABLES)

    def outcomes(self) -> dict[str, float]:
        """The outcomes that have been counted."""
        counted = {outcome: self.value("runs_total", outcome=outcome) for outcome in OUTCOMES}
        return {outcome: count for outcome, count in counted.items() if count}

    def text(self) -> str:
        return generate_latest(self.metrics.registry).decode()


def lock(database: Database) -> Connection[TupleRow]:
    """Holds the job's lock until the connection is closed."""
    holder = database.connect()
    holder.execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])
    return holder


def poison(database: Database) -> None:
    """Lets the youngest session fail, with its batch."""
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute(
        "INSERT INTO public.notes SELECT id FROM user_activity.sessions ORDER BY ended_at DESC LIMIT 1"
    )
