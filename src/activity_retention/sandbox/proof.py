"""What a retention run may and may not have done, judged from the data alone.

Nothing here knows the job's statements. While it judges, nobody else may write to the tables.
"""

from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection
from psycopg.rows import tuple_row


@dataclass(frozen=True)
class Fingerprint:
    """The number of rows and a hash of their whole content, whatever their order."""

    rows: int = 0
    digest: int = 0

    def __str__(self) -> str:
        return f"{self.rows:,} rows #{self.digest & 0xFFFFFFFF:08x}"


@dataclass(frozen=True)
class Counts:
    """Numbers of sessions and of the rows that belong to them."""

    sessions: int
    property_object_views: int
    action_events: int

    def __str__(self) -> str:
        return f"{self.sessions:,} / {self.property_object_views:,} / {self.action_events:,}"


@dataclass(frozen=True)
class Baseline:
    """The data at one moment: what a run with this cutoff may delete, and what has to stay."""

    cutoff: str
    expired: Counts
    kept: dict[str, Fingerprint]
    dangling: dict[str, int]
    expired_digests: frozenset[int] = field(repr=False)


@dataclass(frozen=True)
class Check:
    """One thing that has to hold after a run."""

    name: str
    expected: str
    found: str
    holds: bool


def keep_baseline(connection: Connection[Any], cutoff: str) -> Baseline:
    """The data as it is now. `cutoff` is a timestamptz as text, with its zone.

    The connection must not be in a transaction.
    """
    expired = Counts(0, 0, 0)
    digests: frozenset[int] = frozenset()
    kept = {
        f"{rows} of {kind} sessions": Fingerprint()
        for kind in ("Active", "younger")
        for rows in ("rows", "views", "events")
    }
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(SETTINGS)
        for kind, sessions, views, events, *digested, trees in cursor.execute(TREES, {"cutoff": cutoff}):
            if kind == "expired":
                expired, digests = Counts(sessions, int(views), int(events)), frozenset(trees)
                continue
            for rows, count, digest in zip(
                ("rows", "views", "events"), (sessions, views, events), digested, strict=True
            ):
                kept[f"{rows} of {kind} sessions"] = Fingerprint(int(count), int(digest))
        for count, digest in cursor.execute(STATS):
            kept["rows of property_object_view_stats"] = Fingerprint(count, int(digest))
        dangling: dict[str, int] = dict(cursor.execute(DANGLING).fetchall())
    return Baseline(cutoff, expired, kept, dangling, digests)


def prove(
    connection: Connection[Any],
    baseline: Baseline,
    *,
    drained: bool = True,
    deleted: Counts | None = None,
) -> tuple[Check, ...]:
    """Compares the data with what it was before a run.

    `drained=False` allows expired sessions to be left, each as it was, with all it had. `deleted`, what the run
    reports, is compared with what is gone. The connection must not be in a transaction.
    """
    now = keep_baseline(connection, baseline.cutoff)
    checks = []
    if drained:
        checks.append(_equal("expired sessions that are left", 0, now.expired.sessions))
    else:
        altered = len(now.expired_digests - baseline.expired_digests)
        checks.append(_equal("expired sessions that are left without all they had", 0, altered))
    checks += [_equal(name, was, now.kept[name]) for name, was in baseline.kept.items()]
    checks += [_equal(name, 0, found) for name, found in sorted(now.dangling.items())]
    if deleted is not None:
        checks.append(_equal("deleted sessions / views / events", deleted, _gone(baseline.expired, now.expired)))
    return tuple(checks)


def _equal(name: str, expected: int | Fingerprint | Counts, found: int | Fingerprint | Counts) -> Check:
    return Check(name, str(expected), str(found), expected == found)


def _gone(before: Counts, after: Counts) -> Counts:
    return Counts(
        before.sessions - after.sessions,
        before.property_object_views - after.property_object_views,
        before.action_events - after.action_events,
    )


# The text of the aggregate's rows depends on IntervalStyle, and the two looks may come from different connections.
# With row_security off, rows hidden by a policy are an error.
SETTINGS = """
    SET LOCAL TimeZone = 'UTC';
    SET LOCAL IntervalStyle = 'postgres';
    SET LOCAL row_security = off;
    SET LOCAL work_mem = '512MB'
"""

TREES = """
    WITH views AS (
        SELECT session_id, count(*) AS n, sum(hash_record_extended(view, 0)) AS digest
          FROM user_activity.property_object_views AS view
         GROUP BY session_id),
    events AS (
        SELECT session_id, count(*) AS n, sum(hash_record_extended(event, 0)) AS digest
          FROM user_activity.action_events AS event
         GROUP BY session_id),
    trees AS (
        SELECT CASE WHEN session.status = 'Inactive' AND session.ended_at < %(cutoff)s::timestamptz THEN 'expired'
                    WHEN session.status = 'Active' THEN 'Active'
                    ELSE 'younger' END AS kind,
               hash_record_extended(session, 0) AS digest,
               coalesce(views.n, 0) AS views, coalesce(views.digest, 0) AS views_digest,
               coalesce(events.n, 0) AS events, coalesce(events.digest, 0) AS events_digest
          FROM user_activity.sessions AS session
          LEFT JOIN views ON views.session_id = session.id
          LEFT JOIN events ON events.session_id = session.id)
    SELECT kind,
           count(*), sum(views), sum(events),
           sum(digest), sum(views_digest), sum(events_digest),
           array_agg(hashtextextended(concat_ws(' ', digest, views_digest, events_digest, views, events), 0))
               FILTER (WHERE kind = 'expired')
      FROM trees
     GROUP BY kind
"""

STATS = """
    SELECT count(*), coalesce(sum(hashtextextended(stats::text, 0)), 0)
      FROM user_activity.property_object_view_stats AS stats
"""

DANGLING = """
    SELECT 'events without their session', count(*)
      FROM user_activity.action_events AS event
     WHERE NOT EXISTS (SELECT FROM user_activity.sessions WHERE id = event.session_id)
    UNION ALL
    SELECT 'views without their session', count(*)
      FROM user_activity.property_object_views AS view
     WHERE NOT EXISTS (SELECT FROM user_activity.sessions WHERE id = view.session_id)
    UNION ALL
    SELECT 'events of a missing view', count(*)
      FROM user_activity.action_events AS event
     WHERE event.property_object_view_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM user_activity.property_object_views WHERE id = event.property_object_view_id)
    UNION ALL
    SELECT 'views of a missing event', count(*)
      FROM user_activity.property_object_views AS view
     WHERE view.apply_filter_event_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM user_activity.action_events WHERE id = view.apply_filter_event_id)
"""
