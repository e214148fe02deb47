"""What a run fixes before its first batch: that the policy fits, the cutoff, the backlog."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import Composed

from activity_retention import catalog, statements
from activity_retention.batch import Selection
from activity_retention.doctor import Finding, findings, selection_findings
from activity_retention.errors import Refused
from activity_retention.facts import Facts
from activity_retention.policy import Policy
from activity_retention.session import Connection, limit
from activity_retention.settings import JobSettings

_COUNT_SECONDS = "5s"
_LOCK_SECONDS = "1s"


@dataclass(frozen=True)
class Backlog:
    """Expired roots when looked at; `count` is None where nobody could count, estimated where not `exact`.

    `oldest` is the first anchor, `oldest_age` the seconds since then, by the server's clock.
    """

    count: int | None
    exact: bool
    oldest: str | None = None
    oldest_age: float | None = None


@dataclass(frozen=True)
class Preparation:
    cutoff: str
    backlog: Backlog
    warnings: tuple[Finding, ...]


def prepare(connection: Connection, job: JobSettings, key: int) -> Preparation:
    """Looks first; raises Refused with every error found."""
    policy = job.the_policy
    facts, warnings = check(connection, policy)
    cutoff = read_cutoff(connection, job.retention_period)
    backlog = count_backlog(connection, policy, cutoff)
    if backlog.count is not None:
        selection = Selection(key, cutoff, job.batch_size)
        scans = catalog.read_scans(connection, statements.batch(policy), selection.parameters)
        warnings += selection_findings(policy, facts.relations[policy.root].rows, scans)
    return Preparation(cutoff, backlog, warnings)


def check(connection: Connection, policy: Policy) -> tuple[Facts, tuple[Finding, ...]]:
    """The catalog's facts and the warnings in them; raises Refused with every error."""
    facts = catalog.read_facts(connection, policy)
    found = findings(policy, facts)
    errors = [str(finding) for finding in found if finding.level == "error"]
    if errors:
        raise Refused(*errors)
    return facts, found


def read_cutoff(connection: Connection, retention_period: timedelta) -> str:
    """Now by the server's clock, less the retention period, as ISO 8601 text: timestamps stay in the database,
    since `infinity` and years beyond 9999 are legal there and not in Python."""
    row = connection.execute(
        "SELECT pg_catalog.to_json(pg_catalog.now() - %s) #>> '{}'", [retention_period]
    ).fetchone()
    return str(row[0]) if row else ""


def count_backlog(connection: Connection, policy: Policy, cutoff: str) -> Backlog:
    """Counts for at most five seconds, then takes the planner's estimate. A count that fails for a lock, or for
    a person's word, fails no run."""
    query, parameters = statements.backlog(policy), {"cutoff": cutoff}
    try:
        ((count, oldest, age),) = bounded(connection, query, parameters)
        return Backlog(count, True, oldest, age)
    except psycopg.errors.QueryCanceled:
        return Backlog(catalog.read_estimate(connection, query, parameters), False)
    except psycopg.errors.LockNotAvailable:
        return Backlog(None, False)


def bounded(connection: Connection, query: Composed, parameters: dict[str, Any]) -> list[TupleRow]:
    """The answer to a question that is not worth waiting for; raises QueryCanceled or LockNotAvailable."""
    with connection.transaction():
        limit(connection, _COUNT_SECONDS, _LOCK_SECONDS)
        return connection.execute(query, parameters).fetchall()
