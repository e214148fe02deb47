"""Cases E: neither the clock, the zone nor the calendar of anybody shifts the cutoff."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from activity_retention.errors import Refused
from activity_retention.events import Event, Started
from activity_retention.session import Connection, open_session
from tests.database import Database

RUN = """
import json
from activity_retention import ActivityRetentionJob, load_settings
print(json.dumps(ActivityRetentionJob(load_settings().settings, watch=lambda _: None).run().to_json()))
"""
ZONES = ["America/New_York", "Asia/Tokyo", "UTC"]


def run_in_another_process(database: Database, **environ: str) -> dict[str, Any]:
    """A run with its own environment; its result as JSON."""
    settings = {"ACTIVITY_RETENTION_DATABASE_URL": database.url()}
    process = subprocess.run(
        [sys.executable, "-c", RUN],
        env={**os.environ, **settings, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(process.stdout)
    return result


@pytest.mark.parametrize("zone", ZONES)
def test_the_clients_zone_shifts_nothing(database: Database, zone: str) -> None:
    """Case E1: of two rows three hours either side of the cutoff the same one goes everywhere."""
    database.session(ended="8763 hours")
    younger = database.session(ended="8757 hours")

    result = run_in_another_process(database, TZ=zone, PGTZ=zone)

    assert (result["outcome"], result["deletedSessions"]) == ("completed", 1)
    assert database.execute("SELECT id FROM user_activity.sessions") == [(younger,)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("TimeZone", zone) for zone in ZONES),
        ("DateStyle", "German, DMY"),
        ("DateStyle", "SQL, MDY"),
        ("IntervalStyle", "sql_standard"),
        ("IntervalStyle", "iso_8601"),
        ("search_path", "public"),
        ("default_transaction_isolation", "serializable"),
        ("client_encoding", "LATIN1"),
    ],
)
def test_what_the_database_or_the_role_sets_shifts_nothing(database: Database, setting: str, value: str) -> None:
    """Case E1."""
    database.session(ended="8763 hours")
    younger = database.session(ended="8757 hours")
    role = "ROLE activity_retention IN DATABASE"
    for owner in ("DATABASE", role):
        database.execute(f"ALTER {owner} {database.name} SET {setting} = '{value}'")

    result = database.run(database_url=database.url("activity_retention"))

    assert (result.outcome, result.rows) == ("completed", 1)
    assert database.execute("SELECT id FROM user_activity.sessions") == [(younger,)]


def test_twelve_minutes_are_not_taken_for_twelve_months(database: Database) -> None:
    """Case E3: refused before anything starts."""
    database.session()

    with pytest.raises(Refused, match=r"months are written as days \(12 months: 365d\)"):
        database.run(retention_period="12m")

    assert database.count("sessions") == 1


@pytest.mark.parametrize("retention", ["365d", "366d", "1461d", "P365D", "8760h", "365.00:00:00"])
def test_a_retention_period_is_an_exact_duration(database: Database, retention: str) -> None:
    """Case E3: 1461 days are four years, one of them a leap year; the database's zone changes its clocks."""
    database.execute(f"ALTER DATABASE {database.name} SET TimeZone = 'Europe/Berlin'")
    settings = database.settings(retention_period=retention)
    query = "SELECT extract(epoch FROM now() - %s)::float8"
    hours = settings.job.retention_period // timedelta(hours=1)

    before = database.value(query, [timedelta(0)])
    cutoff = database.run(retention_period=retention).cutoff
    after = database.value(query, [timedelta(0)])

    then = database.value("SELECT extract(epoch FROM %s::timestamptz)::float8", [cutoff])
    assert before <= then + hours * 3600 <= after


@pytest.fixture
def pinned(database: Database) -> Iterator[Connection]:
    database.execute(f"ALTER DATABASE {database.name} SET TimeZone = 'Europe/Berlin'")
    with open_session(
        database.url(),
        application_name="case E3",
        statement_timeout=timedelta(seconds=60),
        lock_timeout=timedelta(seconds=5),
    ) as session:
        yield session.connection


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("2028-03-01 00:00+00", id="after a leap day"),
        pytest.param("2029-02-28 12:00+00", id="before a year with one"),
        pytest.param("2026-03-29 01:30+00", id="on the night of a change of clocks"),
        pytest.param("2027-03-28 12:00+00", id="in summer, a year after a day in winter"),
    ],
)
def test_365_days_have_365_times_24_hours_in_the_jobs_session(pinned: Connection, moment: str) -> None:
    """Case E3: in a zone that changes its clocks an interval of days has no fixed length."""
    row = pinned.execute(
        "SELECT %(moment)s::timestamptz - %(period)s = %(moment)s::timestamptz - interval '8760 hours'",
        {"moment": moment, "period": timedelta(days=365)},
    ).fetchone()
    assert row == (True,)


def test_the_boundary_is_strict_to_the_microsecond(database: Database) -> None:
    """Case E3: a row on the exact instant of the cutoff stays."""
    first, second = database.session(ended="300 days"), database.session(ended="300 days")

    def move_to_the_boundary(event: Event) -> None:
        if isinstance(event, Started):
            for session, difference in ((first, "0"), (second, "1 microsecond")):
                database.execute(
                    "UPDATE user_activity.sessions SET ended_at = %s::timestamptz - %s::interval WHERE id = %s",
                    [event.cutoff, difference, session],
                )

    assert database.run(watch=move_to_the_boundary).rows == 1
    assert database.execute("SELECT id FROM user_activity.sessions") == [(first,)]
