"""Sessions with their views and events, made inside the server and the same for the same seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import tuple_row

BULK = 50_000


@dataclass(frozen=True)
class Sample:
    """The numbers of rows that were loaded."""

    sessions: int
    property_object_views: int
    action_events: int

    @property
    def rows(self) -> int:
        return self.sessions + self.property_object_views + self.action_events


def load_sample(connection: Connection[Any], *, rows: int = 1_000_000, seed: int = 1) -> Sample:
    """Loads about `rows` rows of guests' and users' activity of two years, Active and Inactive.

    The service has grown: two fifths are older than 365 days. Nothing comes of age within half an hour of loading.
    The same seed makes the same rows, relative to the server's now(). The connection must be in autocommit mode.
    """
    visits = MIXED_VISITS.format(sessions=max(1, round(rows / ROWS_PER_MIXED_SESSION)), seed=seed)
    return _load(connection, visits, rows=rows, name=f"mixed:{seed}", views_filled=1 / 3, events_filled=3 / 8)


def load_expired(
    connection: Connection[Any],
    sessions: int,
    *,
    views_per_session: int = 3,
    events_per_session: int = 8,
    views_filled: float = 1 / 3,
    events_filled: float = 3 / 8,
    ended_ago: str = "400 days",
    seed: int = 1,
) -> Sample:
    """Loads equal Inactive sessions, the oldest first, one second apart, the last ended `ended_ago`.

    `views_filled` and `events_filled` are the shares of views and events that refer to one of the other.
    Further calls need another seed. The connection must be in autocommit mode.
    """
    visits = EXPIRED_VISITS.format(
        sessions=sessions, views=views_per_session, events=events_per_session, ended_ago=ended_ago
    )
    rows = sessions * (1 + views_per_session + events_per_session)
    name = f"expired:{seed}"
    return _load(connection, visits, rows=rows, name=name, views_filled=views_filled, events_filled=events_filled)


def _load(
    connection: Connection[Any],
    visits: sql.Composed,
    *,
    rows: int,
    name: str,
    views_filled: float,
    events_filled: float,
) -> Sample:
    statement = LOAD.format(visits=visits, name=name, views_filled=views_filled, events_filled=events_filled)
    with connection.cursor(row_factory=tuple_row) as cursor:
        with connection.transaction():
            cursor.execute(FUNCTIONS)
            if rows < BULK:
                counts = cursor.execute(statement).fetchone()
            else:
                with _bare_tables(connection):
                    counts = cursor.execute(statement).fetchone()
        # Otherwise autovacuum comes a minute later, in the midst of whatever is measured then.
        cursor.execute(
            "VACUUM (ANALYZE) user_activity.sessions, user_activity.property_object_views,"
            " user_activity.action_events, user_activity.property_object_view_stats"
        )
    assert counts is not None
    return Sample(*counts)


@contextmanager
def _bare_tables(connection: Connection[Any]) -> Iterator[None]:
    """Sets keys and indexes aside: over many random ids, building them afterwards is several times faster."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SET LOCAL maintenance_work_mem = '512MB'")
        cursor.execute("SET LOCAL work_mem = '128MB'")
        statements = cursor.execute(KEYS_AND_INDEXES).fetchall()
        for drop, _ in statements:
            cursor.execute(drop)
        yield
        for _, create in reversed(statements):
            cursor.execute(create)


# Foreign keys first, the indexes they rest on last; keys that other tables hold on ours, too.
KEYS_AND_INDEXES = """
    WITH tables AS (
        SELECT 'user_activity.sessions'::regclass AS oid
        UNION ALL SELECT 'user_activity.property_object_views'::regclass
        UNION ALL SELECT 'user_activity.action_events'::regclass),
    statements AS (
        SELECT CASE contype WHEN 'f' THEN 1 ELSE 3 END AS step,
               format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) AS drop,
               format('ALTER TABLE %s ADD CONSTRAINT %I %s',
                      conrelid::regclass, conname, pg_get_constraintdef(oid)) AS create
          FROM pg_constraint
         WHERE (conrelid IN (SELECT oid FROM tables) AND contype IN ('f', 'p', 'u'))
            OR (confrelid IN (SELECT oid FROM tables) AND contype = 'f')
        UNION ALL
        SELECT 2, format('DROP INDEX %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
          FROM pg_index
         WHERE indrelid IN (SELECT oid FROM tables)
           AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u')))
    SELECT drop, "create" FROM statements ORDER BY step, drop
"""

# Values come from hashes of the row's number: random() would depend on the order in which a plan calls it.
FUNCTIONS = """
    CREATE OR REPLACE FUNCTION pg_temp.id(name text, n bigint, k int) RETURNS uuid IMMUTABLE LANGUAGE sql
        AS $$ SELECT md5(name || ':' || n::text || ':' || k::text)::uuid $$;
    CREATE OR REPLACE FUNCTION pg_temp.share(seed int, draw int, n bigint) RETURNS float8 IMMUTABLE LANGUAGE sql
        AS $$ SELECT (hashint8extended(n, seed::bigint << 32 | draw) & 1048575) / 1048576.0::float8 $$;
    CREATE OR REPLACE FUNCTION pg_temp.filled(k int, share float8) RETURNS bool IMMUTABLE LANGUAGE sql
        AS $$ SELECT floor(k * share) > floor((k - 1) * share) $$;
"""

ROWS_PER_MIXED_SESSION = 11.6

# Most sessions are short and a few have thousands of events (Pareto, exponent 1.5); 5 % have no children.
# Some Active sessions carry an old ended_at: the schema allows it, and it exposes a pick that forgets the status.
MIXED_VISITS = sql.SQL("""
    SELECT n,
           CASE WHEN activity < 0.03 THEN 'Active' ELSE 'Inactive' END AS status,
           CASE WHEN owner < 0.4 THEN owner_id END AS user_id,
           CASE WHEN owner >= 0.3 THEN owner_id END AS anonymous_id,
           now() - age - length AS created_at,
           CASE WHEN activity >= 0.02 THEN now() - age END AS ended_at,
           length,
           CASE WHEN weight < 0.95 THEN least(5000, floor(    tail)) ELSE 0 END::int AS views,
           CASE WHEN weight < 0.95 THEN least(5000, floor(3 * tail)) ELSE 0 END::int AS events
      FROM generate_series(1, {sessions}) AS n,
   LATERAL (SELECT pg_temp.share({seed}, 1, n) AS activity,
                   pg_temp.share({seed}, 2, n) AS owner,
                   pg_temp.share({seed}, 3, n) AS weight) AS drawn,
   LATERAL (SELECT pg_temp.id('owner', floor(20000 * pg_temp.share({seed}, 4, n))::bigint, 0) AS owner_id,
                   power(1 - least(weight, 0.95) / 0.95 + 1e-6, -1 / 1.5) AS tail,
                   interval '1 hour' * floor(2 * 365 * 24 * power(1 - n / {sessions}::float8, 1.4))
                       + interval '30 minutes' * pg_temp.share({seed}, 5, n) AS age,
                   interval '2 hours' * power(pg_temp.share({seed}, 6, n), 3) AS length) AS shaped
""")

EXPIRED_VISITS = sql.SQL("""
    SELECT n,
           'Inactive' AS status,
           CASE WHEN n % 3 = 0 THEN pg_temp.id('owner', n % 20000, 0) END AS user_id,
           CASE WHEN n % 3 > 0 THEN pg_temp.id('owner', n, 0) END AS anonymous_id,
           ended_at - interval '10 minutes' AS created_at,
           ended_at,
           interval '10 minutes' AS length,
           {views} AS views,
           {events} AS events
      FROM generate_series(1, {sessions}) AS n,
   LATERAL (SELECT now() - {ended_ago}::interval - interval '1 second' * ({sessions} - n) AS ended_at) AS past
""")

# One statement: views and events refer to each other, and foreign keys are checked when a statement ends.
LOAD = sql.SQL("""
    WITH visits AS MATERIALIZED (
        SELECT pg_temp.id({name} || ':session', n, 0) AS id, * FROM ({visits}) AS made),
    loaded_sessions AS (
        INSERT INTO user_activity.sessions (id, user_id, anonymous_id, status, created_at, ended_at)
        SELECT id, user_id, anonymous_id, status, created_at, ended_at FROM visits),
    loaded_views AS (
        INSERT INTO user_activity.property_object_views
               (id, session_id, property_object_id, apply_filter_event_id, started_at, duration)
        SELECT pg_temp.id({name} || ':view', n, k),
               id,
               pg_temp.id('property', floor(5000 * power(pg_temp.share(0, k, n), 3))::bigint, 0),
               CASE WHEN events > 0 AND pg_temp.filled(k, {views_filled})
                    THEN pg_temp.id({name} || ':event', n, 1 + (k - 1) % events) END,
               created_at + length * ((k - 1) / views::float8),
               length / views
          FROM visits, generate_series(1, views) AS k
        RETURNING property_object_id, duration),
    loaded_events AS (
        INSERT INTO user_activity.action_events
               (id, session_id, kind, property_object_view_id, occurred_at, payload)
        SELECT pg_temp.id({name} || ':event', n, k),
               id,
               CASE WHEN of_view THEN 'contact-opened' ELSE 'filter-applied' END,
               CASE WHEN of_view THEN pg_temp.id({name} || ':view', n, 1 + (k - 1) % views) END,
               created_at + length * (k / events::float8),
               CASE WHEN NOT of_view THEN '{{"rooms": 2, "district": "center"}}'::jsonb END
          FROM visits, generate_series(1, events) AS k,
       LATERAL (SELECT views > 0 AND pg_temp.filled(k, {events_filled}) AS of_view) AS reference),
    loaded_stats AS (
        INSERT INTO user_activity.property_object_view_stats AS stats
               (property_object_id, views_count, total_duration)
        SELECT property_object_id, count(*), sum(duration) FROM loaded_views GROUP BY property_object_id
            ON CONFLICT (property_object_id) DO UPDATE
           SET views_count = stats.views_count + excluded.views_count,
               total_duration = stats.total_duration + excluded.total_duration)
    SELECT count(*), coalesce(sum(views), 0)::bigint, coalesce(sum(events), 0)::bigint FROM visits
""")
