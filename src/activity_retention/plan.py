"""What a run would do, read-only: the same selection, counted and never locked."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from activity_retention import catalog, statements
from activity_retention.batch import Selection
from activity_retention.doctor import Finding, selection_findings
from activity_retention.facts import Facts, Scan
from activity_retention.lock import lock_key, lock_name
from activity_retention.policy import Child, Policy, Table
from activity_retention.preparation import (
    Backlog,
    bounded,
    check,
    count_backlog,
    read_cutoff,
)
from activity_retention.session import Connection
from activity_retention.settings import JobSettings

# A retention period is cut into this many bars, so that the cutoff falls between two of them.
BARS_A_PERIOD = 12
_MOST_BARS = 3 * BARS_A_PERIOD
_SAMPLED_ROOTS = 100_000
_MOST_FIRES = 10_000


@dataclass(frozen=True)
class Count:
    """A number of rows; an estimate where counting would have taken more than five seconds."""

    rows: int
    exact: bool


@dataclass(frozen=True)
class Bar:
    """Roots in the policy's state whose age is in [`since`, `until`); the last bar has no end."""

    since: timedelta
    until: timedelta | None
    roots: int
    expired: bool


@dataclass(frozen=True)
class Histogram:
    """Ages of the roots; `exact` is false where it was drawn from a sample, empty where even that failed."""

    bars: tuple[Bar, ...]
    exact: bool


@dataclass(frozen=True)
class Survey:
    """What a person must know before saying yes."""

    cutoff: str
    backlog: Backlog
    roots: Count
    facts: Facts
    warnings: tuple[Finding, ...]

    @property
    def share(self) -> float:
        """The part of the root table that has expired, 0..1."""
        return min(1.0, (self.backlog.count or 0) / self.roots.rows) if self.roots.rows else 0.0


@dataclass(frozen=True)
class Plan:
    """What a person wants to know before the first real run."""

    survey: Survey
    rows: Mapping[Table, Count]
    batches: int
    runs: int
    drained_by: datetime | None
    histogram: Histogram
    scans: tuple[Scan, ...]
    statement: str
    warnings: tuple[Finding, ...]


def read_survey(connection: Connection, job: JobSettings) -> Survey:
    """Looks at the root table; raises Refused where a run would be refused."""
    policy = job.the_policy
    facts, warnings = check(connection, policy)
    cutoff = read_cutoff(connection, job.retention_period)
    backlog = count_backlog(connection, policy, cutoff)
    return Survey(cutoff, backlog, _roots(connection, policy, facts), facts, warnings)


def read_plan(connection: Connection, job: JobSettings) -> Plan:
    """Looks at everything; raises Refused where a run would be refused."""
    policy = job.the_policy
    survey = read_survey(connection, job)
    parameters = Selection(lock_key(lock_name(policy.name)), survey.cutoff, job.batch_size).parameters
    query = statements.batch(policy)
    scans = catalog.read_scans(connection, query, parameters)
    batches = ceil((survey.backlog.count or 0) / job.batch_size)
    runs = ceil(batches / job.max_batches_per_run)
    fires = job.schedule.upcoming(datetime.now(UTC), min(runs, _MOST_FIRES))
    return Plan(
        survey=survey,
        rows=_rows(connection, policy, survey),
        batches=batches,
        runs=runs,
        drained_by=fires[-1] if fires and runs == len(fires) else None,
        histogram=_histogram(connection, job, survey),
        scans=scans,
        statement=psycopg.ClientCursor(connection).mogrify(query, parameters),
        warnings=(*survey.warnings, *selection_findings(policy, survey.roots.rows, scans)),
    )


def _roots(connection: Connection, policy: Policy, facts: Facts) -> Count:
    query = SQL("SELECT count(*) FROM {}").format(statements.table(policy.root))
    return _count(connection, query, {}, facts.relations[policy.root].rows)


def _rows(connection: Connection, policy: Policy, survey: Survey) -> dict[Table, Count]:
    children = {
        child.table: _count(
            connection,
            _expired_children(policy, child),
            {"cutoff": survey.cutoff},
            round(survey.facts.relations[child.table].rows * survey.share),
        )
        for child in policy.children
    }
    return {**children, policy.root: Count(survey.backlog.count or 0, survey.backlog.exact)}


def _count(connection: Connection, query: Composed, parameters: dict[str, Any], estimate: int) -> Count:
    try:
        ((rows,),) = bounded(connection, query, parameters)
        return Count(rows, True)
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable):
        return Count(max(0, estimate), False)


def _expired_children(policy: Policy, child: Child) -> Composed:
    return SQL(
        """
        SELECT count(*)
          FROM {child}
         WHERE {reference} IN (
                   SELECT {key}
                     FROM {root}
                    WHERE {expired})
        """
    ).format(
        child=statements.table(child.table),
        reference=Identifier(child.reference),
        key=Identifier(policy.key),
        root=statements.table(policy.root),
        expired=statements.expired(policy),
    )


def _histogram(connection: Connection, job: JobSettings, survey: Survey) -> Histogram:
    width = job.retention_period / BARS_A_PERIOD
    parameters = {
        "cutoff": survey.cutoff,
        "period": job.retention_period,
        "width": width.total_seconds(),
        "last": _MOST_BARS - 1,
    }
    # Past a hundred thousand roots a sample of about as many draws the same picture in no time.
    percent = min(100.0, 100.0 * _SAMPLED_ROOTS / max(1, survey.roots.rows))
    sampled = percent < 100.0
    try:
        found = bounded(connection, _ages(job.the_policy, percent if sampled else None), parameters)
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable):
        return Histogram((), False)
    counts = {bar: round(roots_in_bar * 100 / percent) for bar, roots_in_bar in found}
    bars = tuple(
        Bar(
            since=bar * width,
            until=(bar + 1) * width if bar < _MOST_BARS - 1 else None,
            roots=counts.get(bar, 0),
            expired=bar >= BARS_A_PERIOD,
        )
        for bar in range(max(counts, default=-1) + 1)
    )
    return Histogram(bars, not sampled)


def _ages(policy: Policy, percent: float | None) -> Composed:
    sample = SQL(" TABLESAMPLE SYSTEM ({}) REPEATABLE (1)").format(Literal(percent)) if percent else SQL("")
    return SQL(
        """
        SELECT LEAST(GREATEST(floor(
                   extract(epoch FROM %(cutoff)s::timestamptz + %(period)s - {anchor}) / %(width)s
               ), 0), %(last)s)::int AS bar,
               count(*)
          FROM {root}{sample}
         WHERE {state_column} = {state}
           AND isfinite({anchor})
         GROUP BY 1
        """
    ).format(
        anchor=Identifier(policy.anchor),
        root=statements.table(policy.root),
        sample=sample,
        state_column=Identifier(policy.state_column),
        state=Literal(policy.state),
    )
