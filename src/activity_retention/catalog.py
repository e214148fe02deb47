"""pg_catalog and EXPLAIN, read into plain facts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg.sql import SQL, Composable

from activity_retention.facts import Column, Facts, ForeignKey, Relation, Scan
from activity_retention.policy import Policy, Table
from activity_retention.session import Connection

_KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table"}
_ACTIONS = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


def read_facts(connection: Connection, policy: Policy) -> Facts:
    """Everything that the checks need, in a handful of catalog queries."""
    (role,) = connection.execute("SELECT current_user").fetchone() or ("",)
    relations = {name: relation for name in policy.tables if (relation := _relation(connection, name))}
    references = {
        (child.table, child.reference): _indexed(connection, child.table, [child.reference])
        for child in policy.children
        if child.table in relations
    }
    return Facts(role, relations, tuple(_foreign_keys(connection, tuple(relations))), references)


def read_scans(connection: Connection, query: Composable, parameters: Mapping[str, Any]) -> tuple[Scan, ...]:
    """How the server would read tables for `query`, in the order of its plan."""
    row = connection.execute(SQL("EXPLAIN (FORMAT JSON, VERBOSE) ") + query, parameters).fetchone()
    return tuple(_scans(row[0][0]["Plan"])) if row else ()


def read_estimate(connection: Connection, query: Composable, parameters: Mapping[str, Any]) -> int:
    """The planner's estimate of the rows that the input of an aggregate `query` has."""
    row = connection.execute(SQL("EXPLAIN (FORMAT JSON) ") + query, parameters).fetchone()
    node = row[0][0]["Plan"] if row else {}
    while "Aggregate" in node.get("Node Type", "") or node.get("Node Type", "").startswith("Gather"):
        node = node["Plans"][0]
    return int(node.get("Plan Rows", 0))


def _scans(node: Mapping[str, Any]) -> Iterator[Scan]:
    if "Relation Name" in node and "Scan" in node["Node Type"]:
        # A bitmap heap scan names its index one level below.
        index = node.get("Index Name") or next(
            (part.get("Index Name") for part in node.get("Plans", []) if "Index Name" in part), None
        )
        yield Scan(Table(node["Schema"], node["Relation Name"]), index)
    for part in node.get("Plans", []):
        yield from _scans(part)


def _relation(connection: Connection, name: Table) -> Relation | None:
    row = connection.execute(
        """
        SELECT c.oid,
               c.relkind::text,
               c.reltuples::bigint,
               pg_catalog.row_security_active(c.oid),
               pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
               pg_catalog.has_table_privilege(c.oid, 'DELETE'),
               pg_catalog.has_any_column_privilege(c.oid, 'UPDATE')
          FROM pg_catalog.pg_class AS c
          JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = %s
           AND c.relname = %s
        """,
        [name.schema, name.name],
    ).fetchone()
    if row is None:
        return None
    oid, kind, rows, hides_rows, may_use_schema, may_delete, may_lock = row
    columns = connection.execute(
        """
        SELECT a.attname,
               pg_catalog.format_type(a.atttypid, NULL),
               t.typcategory::text,
               n.nspname = 'pg_catalog',
               ARRAY(
                   SELECT e.enumlabel::text
                     FROM pg_catalog.pg_enum AS e
                    WHERE e.enumtypid = t.oid
                    ORDER BY e.enumsortorder),
               pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT')
          FROM pg_catalog.pg_attribute AS a
          JOIN pg_catalog.pg_type AS declared ON declared.oid = a.atttypid
          JOIN pg_catalog.pg_type AS t ON t.oid = COALESCE(NULLIF(declared.typbasetype, 0), declared.oid)
          JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
         WHERE a.attrelid = %s
           AND a.attnum > 0
           AND NOT a.attisdropped
        """,
        [oid],
    )
    return Relation(
        _KINDS.get(kind, f"relation of kind {kind}"),
        rows,
        hides_rows,
        may_use_schema,
        may_delete,
        may_lock,
        {
            name: Column(kind, category, builtin, tuple(labels), readable)
            for name, kind, category, builtin, labels, readable in columns
        },
    )


def _foreign_keys(connection: Connection, targets: Sequence[Table]) -> Iterator[ForeignKey]:
    rows = connection.execute(
        """
        SELECT k.conname,
               source_schema.nspname,
               source.relname,
               ARRAY(
                   SELECT a.attname::text
                     FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY AS part (attnum, position)
                     JOIN pg_catalog.pg_attribute AS a
                       ON a.attrelid = k.conrelid
                      AND a.attnum = part.attnum
                    ORDER BY part.position),
               target_schema.nspname,
               target.relname,
               k.confdeltype::text
          FROM pg_catalog.pg_constraint AS k
          JOIN pg_catalog.pg_class AS source ON source.oid = k.conrelid
          JOIN pg_catalog.pg_namespace AS source_schema ON source_schema.oid = source.relnamespace
          JOIN pg_catalog.pg_class AS target ON target.oid = k.confrelid
          JOIN pg_catalog.pg_namespace AS target_schema ON target_schema.oid = target.relnamespace
          JOIN unnest(%s::text[], %s::text[]) AS wanted (schema, name)
            ON wanted.schema = target_schema.nspname
           AND wanted.name = target.relname
         WHERE k.contype = 'f'
           AND k.conparentid = 0
         ORDER BY k.conname
        """,
        [[name.schema for name in targets], [name.name for name in targets]],
    ).fetchall()
    for key, schema, name, columns, target_schema, target, action in rows:
        source = Table(schema, name)
        yield ForeignKey(
            key,
            source,
            tuple(columns),
            Table(target_schema, target),
            _ACTIONS[action],
            _indexed(connection, source, columns),
        )


def _indexed(connection: Connection, name: Table, columns: Sequence[str]) -> bool:
    """Whether a valid index leads with these columns, in any order, and holds every row where they are set."""
    row = connection.execute(
        """
        SELECT EXISTS (
            SELECT
              FROM pg_catalog.pg_index AS i
              JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
              JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
              JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
              JOIN pg_catalog.pg_am AS m ON m.oid = x.relam
             WHERE n.nspname = %(schema)s
               AND c.relname = %(name)s
               AND i.indisvalid
               AND i.indnkeyatts >= %(count)s
               AND m.amname IN ('btree', 'hash')
               AND ARRAY(
                       SELECT a.attname::text
                         FROM pg_catalog.generate_series(0, %(count)s - 1) AS position
                         JOIN pg_catalog.pg_attribute AS a
                           ON a.attrelid = i.indrelid
                          AND a.attnum = i.indkey[position]
                        ORDER BY a.attname::text) = %(columns)s::text[]
               AND (i.indpred IS NULL
                    OR pg_catalog.pg_get_expr(i.indpred, i.indrelid) = ANY (ARRAY(
                           SELECT '(' || pg_catalog.quote_ident(wanted) || ' IS NOT NULL)'
                             FROM pg_catalog.unnest(%(columns)s::text[]) AS wanted))))
        """,
        {
            "schema": name.schema,
            "name": name.name,
            "columns": sorted(columns),
            "count": len(columns),
        },
    ).fetchone()
    return row == (True,)
