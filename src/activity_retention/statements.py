"""Every statement that can change data, and those that share its predicate, built from a Policy.

One statement a batch: in separate statements the SET NULL keys between children would make the server update rows
that it deletes a moment later. Its parameters are `key`, `cutoff`, `floor`, `size`, `ids` and `left`.
"""

from collections.abc import Sequence
from textwrap import indent

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from activity_retention.policy import Policy, Table


def table(name: Table) -> Identifier:
    return Identifier(name.schema, name.name)


def expired(policy: Policy) -> Composed:
    """The predicate of deletion (R-ALG-3). The state is a literal, so that a generic plan still finds the
    partial index (case A9)."""
    return SQL("{state_column} = {state} AND {anchor} < %(cutoff)s::timestamptz").format(
        state_column=Identifier(policy.state_column),
        state=Literal(policy.state),
        anchor=Identifier(policy.anchor),
    )


def batch(policy: Policy, *, floor: bool = False, listed: bool = False, leaving: bool = False) -> Composed:
    """Picks up to `size` expired roots, oldest first, and deletes them with their children.

    With `floor`, only roots at or above it: a pick without one walks the dead index entries of all earlier batches
    (case A1). With `listed`, only the roots in `ids`. With `leaving`, none of those in `left`.

    Returns one row: whether the lock was ours, how many roots were picked, the newest anchor among them as
    text, and the number of rows deleted, in the order of `policy.tables`.
    """
    key, anchor = Identifier(policy.key), Identifier(policy.anchor)
    references = [(child.table, child.reference) for child in policy.children] + [(policy.root, policy.key)]
    return SQL(
        """\
WITH held AS MATERIALIZED (
    SELECT pg_catalog.pg_try_advisory_xact_lock(%(key)s) AS ok
),
batch AS MATERIALIZED (
{pick}
),
{deletes}
SELECT (SELECT ok FROM held),
       (SELECT count(*) FROM batch),
       (SELECT pg_catalog.to_json(max({anchor})) #>> '{{}}' FROM batch),
       {counts}"""
    ).format(
        pick=_pick(
            policy,
            SQL("{}, {}").format(key, anchor),
            _conditions(policy, gated=True, floor=floor, listed=listed, leaving=leaving),
            margin="    ",
        ),
        deletes=SQL(",\n").join(
            _delete(step, name, reference, policy.key) for step, (name, reference) in enumerate(references, start=1)
        ),
        anchor=anchor,
        counts=SQL(",\n       ").join(
            SQL("(SELECT n FROM {})").format(_done(step)) for step in range(1, len(references) + 1)
        ),
    )


def pick(policy: Policy, *, floor: bool = False, leaving: bool = False) -> Composed:
    """Locks the roots that a batch would take and returns their keys to the client."""
    conditions = _conditions(policy, gated=False, floor=floor, listed=False, leaving=leaving)
    return _pick(policy, Identifier(policy.key), conditions)


def backlog(policy: Policy) -> Composed:
    """Counts the expired roots and finds the oldest anchor, as text and as seconds since then."""
    return SQL(
        """\
SELECT count(*),
       pg_catalog.to_json(min({anchor})) #>> '{{}}',
       (extract(epoch FROM pg_catalog.now()) - extract(epoch FROM min({anchor})))::float8
  FROM {root}
 WHERE {expired}"""
    ).format(anchor=Identifier(policy.anchor), root=table(policy.root), expired=expired(policy))


def any_expired(policy: Policy) -> Composed:
    """Whether an expired root is left, locked by others or not."""
    return SQL(
        """\
SELECT EXISTS (
    SELECT FROM {root}
     WHERE {expired})"""
    ).format(root=table(policy.root), expired=expired(policy))


def _pick(policy: Policy, columns: Composable, conditions: Sequence[Composable], margin: str = "") -> Composed:
    template = """\
SELECT {columns}
  FROM {root}
 WHERE {conditions}
 ORDER BY {anchor}
 LIMIT %(size)s
   FOR UPDATE SKIP LOCKED"""
    return SQL(indent(template, margin)).format(
        columns=columns,
        root=table(policy.root),
        conditions=SQL(f"\n{margin}   AND ").join(conditions),
        anchor=Identifier(policy.anchor),
    )


def _conditions(policy: Policy, *, gated: bool, floor: bool, listed: bool, leaving: bool) -> Sequence[Composable]:
    anchor, key = Identifier(policy.anchor), Identifier(policy.key)
    candidates = (
        (True, expired(policy)),
        (floor, SQL("{} >= %(floor)s::timestamptz").format(anchor)),
        (listed, SQL("{} = ANY (%(ids)s)").format(key)),
        (leaving, SQL("{} <> ALL (%(left)s)").format(key)),
        (gated, SQL("(SELECT ok FROM held)")),
    )
    return [condition for wanted, condition in candidates if wanted]


def _delete(step: int, name: Table, reference: str, key: str) -> Composed:
    # Sub-statements of a WITH run in no promised order: reading the count of the step before makes this one
    # wait for it (R-ALG-4).
    turn = SQL("\n       AND (SELECT n FROM {}) >= 0").format(_done(step - 1)) if step > 1 else SQL("")
    return SQL(
        """\
{gone} AS (
    DELETE FROM {table}
     WHERE {reference} = ANY (ARRAY(SELECT {key} FROM batch)){turn}
    RETURNING 1
),
{done} AS (
    SELECT count(*) AS n FROM {gone}
)"""
    ).format(
        gone=Identifier(f"delete_{step}"),
        table=table(name),
        reference=Identifier(reference),
        key=Identifier(key),
        turn=turn,
        done=_done(step),
    )


def _done(step: int) -> Identifier:
    return Identifier(f"done_{step}")
