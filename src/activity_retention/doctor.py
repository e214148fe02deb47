"""Checks of a policy against the catalog's facts: what is unsafe or slow, why, and the SQL that mends it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from activity_retention.facts import Facts, ForeignKey, Scan
from activity_retention.policy import Policy, Table

# Reading a table this small from end to end costs less than the index would.
_SMALL = 10_000
_LOSING = ("CASCADE", "SET NULL", "SET DEFAULT")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. An error refuses the run, a warning is logged."""

    id: str
    level: Literal["error", "warning"]
    message: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.message}: {self.why}. Mend: {self.mend}"


def findings(policy: Policy, facts: Facts) -> tuple[Finding, ...]:
    """Every finding at once, errors first."""
    found = [*_tables(policy, facts), *_foreign_keys(policy, facts), *_child_indexes(policy, facts)]
    return tuple(sorted(found, key=lambda finding: finding.level))


def selection_findings(policy: Policy, rows: int, scans: tuple[Scan, ...]) -> tuple[Finding, ...]:
    """Whether the server would read the whole root table, of about `rows` rows (-1: unknown), a batch."""
    if 0 <= rows <= _SMALL or not any(scan.table == policy.root and scan.index is None for scan in scans):
        return ()
    state = policy.state.replace("'", "''")
    return (
        Finding(
            "selection_without_index",
            "warning",
            f"no index serves the selection on {policy.root}",
            f"each batch reads all of its {rows:,} rows" if rows > 0 else "each batch reads all of it",
            f"CREATE INDEX CONCURRENTLY ON {_quoted(policy.root)} ({_ident(policy.anchor)}) "
            f"WHERE {_ident(policy.state_column)} = '{state}';",
        ),
    )


def _tables(policy: Policy, facts: Facts) -> Iterator[Finding]:
    for table in policy.tables:
        relation = facts.relations.get(table)
        if relation is None:
            yield Finding(
                "missing_table",
                "error",
                f"there is no table {table}",
                "the policy names it",
                "check the database in the URL, or create it with: activity-retention schema | psql",
            )
            continue
        if relation.kind != "table":
            yield Finding(
                "not_a_table",
                "error",
                f"{table} is a {relation.kind}",
                "rows there cannot be locked with SKIP LOCKED",
                "name the table behind it in the policy",
            )
        yield from _rights(policy, facts, table)
        yield from _columns(policy, facts, table)


def _rights(policy: Policy, facts: Facts, table: Table) -> Iterator[Finding]:
    relation = facts.relations[table]
    role = _ident(facts.role)
    grants = []
    if not relation.may_use_schema:
        grants.append(("USAGE on the schema", f"GRANT USAGE ON SCHEMA {_ident(table.schema)} TO {role};"))
    unread = [
        name
        for name in _needed_columns(policy, table)
        if name in relation.columns and not relation.columns[name].readable
    ]
    if unread:
        grants.append(("SELECT", f"GRANT SELECT ON {_quoted(table)} TO {role};"))
    if not relation.may_delete:
        grants.append(("DELETE", f"GRANT DELETE ON {_quoted(table)} TO {role};"))
    if table == policy.root and not relation.may_lock:
        grants.append(
            (
                "UPDATE on some column, which FOR UPDATE needs",
                f"GRANT UPDATE ({_ident(policy.state_column)}) ON {_quoted(table)} TO {role};",
            )
        )
    if grants:
        yield Finding(
            "missing_privilege",
            "error",
            f"role {facts.role} lacks {', '.join(right for right, _ in grants)} on {table}",
            "the batch would be refused",
            " ".join(sql for _, sql in grants),
        )
    if relation.hides_rows:
        yield Finding(
            "row_security",
            "error",
            f"row-level security applies to role {facts.role} on {table}",
            "expired rows that it hides would be kept for ever and in silence",
            f"ALTER ROLE {role} BYPASSRLS;",
        )


def _columns(policy: Policy, facts: Facts, table: Table) -> Iterator[Finding]:
    columns = facts.relations[table].columns
    for name in _needed_columns(policy, table):
        if name not in columns:
            yield Finding(
                "missing_column",
                "error",
                f"{table} has no column {name}",
                "the policy names it",
                f"it has: {', '.join(columns)}",
            )
    if table != policy.root:
        return
    anchor = columns.get(policy.anchor)
    if anchor and anchor.type != "timestamp with time zone":
        yield Finding(
            "anchor_type",
            "error",
            f"{table}.{policy.anchor} is a {anchor.type}",
            "only timestamp with time zone names an instant",
            f"ALTER TABLE {_quoted(table)} ALTER {_ident(policy.anchor)} TYPE timestamptz;",
        )
    state = columns.get(policy.state_column)
    if state is None:
        return
    if state.labels and policy.state not in state.labels:
        yield Finding(
            "state_unknown",
            "error",
            f"{table}.{policy.state_column} can never be {policy.state}",
            f"its type {state.type} knows only: {', '.join(state.labels)}",
            "spell the state as the enum does",
        )
    elif state.category not in "SE" or not (state.builtin or state.labels):
        yield Finding(
            "state_type",
            "error",
            f"{table}.{policy.state_column} is a {state.type}",
            f"it cannot be compared with '{policy.state}' safely",
            "make it text or an enum",
        )


def _foreign_keys(policy: Policy, facts: Facts) -> Iterator[Finding]:
    for key in facts.foreign_keys:
        listed = key.table in policy.tables
        message = f"{key.table} references {key.target} by {key.name} ON DELETE {key.on_delete}"
        if not listed and key.on_delete in _LOSING:
            loss = "deletes its rows" if key.on_delete == "CASCADE" else "rewrites its rows"
            yield Finding(
                "foreign_key_loses_data",
                "error",
                message,
                f"the policy does not list that table, and each deletion {loss} in silence",
                _restricted(key),
            )
        elif key.table == policy.root and _crosses(policy, key):
            yield Finding(
                "foreign_key_crosses",
                "error",
                message,
                "deleting an expired row would delete or rewrite another one that is not",
                _restricted(key),
            )
        elif not listed:
            yield Finding(
                "foreign_key_blocks",
                "warning",
                message,
                "the policy does not list that table, so a batch with a referenced row fails",
                "list it in the policy, or delete its rows first",
            )
        if not key.indexed and not _is_reference(policy, key):
            yield Finding(
                "foreign_key_without_index",
                "warning",
                f"no valid index of {key.table} leads with {', '.join(key.columns)} (foreign key {key.name})",
                f"each deleted row of {key.target} reads the whole table",
                _index(key.table, key.columns),
            )


def _child_indexes(policy: Policy, facts: Facts) -> Iterator[Finding]:
    for (table, column), indexed in facts.references.items():
        if not indexed:
            yield Finding(
                "reference_without_index",
                "warning",
                f"no valid index of {table} leads with {column}",
                "each batch reads the whole table, and so does the foreign key for each root",
                _index(table, (column,)),
            )


def _crosses(policy: Policy, key: ForeignKey) -> bool:
    """A key of the root table by which the deletion of one root, or of its child, reaches another root."""
    return key.on_delete == "CASCADE" or (key.target == policy.root and key.on_delete in _LOSING)


def _is_reference(policy: Policy, key: ForeignKey) -> bool:
    return any(key.table == child.table and key.columns == (child.reference,) for child in policy.children)


def _needed_columns(policy: Policy, table: Table) -> tuple[str, ...]:
    if table == policy.root:
        return (policy.key, policy.state_column, policy.anchor)
    return tuple(child.reference for child in policy.children if child.table == table)


def _index(table: Table, columns: tuple[str, ...]) -> str:
    return f"CREATE INDEX CONCURRENTLY ON {_quoted(table)} ({', '.join(map(_ident, columns))});"


def _restricted(key: ForeignKey) -> str:
    columns = ", ".join(map(_ident, key.columns))
    return (
        f"ALTER TABLE {_quoted(key.table)} DROP CONSTRAINT {_ident(key.name)}, "
        f"ADD CONSTRAINT {_ident(key.name)} FOREIGN KEY ({columns}) REFERENCES {_quoted(key.target)} "
        "ON DELETE RESTRICT;"
    )


def _quoted(table: Table) -> str:
    return f"{_ident(table.schema)}.{_ident(table.name)}"


def _ident(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name.isascii() and name == name.lower() and not name[0].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'
