"""Facts in, findings out: each problem once, with its level, its reason and the SQL that mends it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from activity_retention.doctor import Finding, findings, selection_findings
from activity_retention.facts import Column, Facts, ForeignKey, Relation, Scan
from activity_retention.policy import USER_ACTIVITY, Child, Policy, Table

SESSIONS = USER_ACTIVITY.root
EVENTS, VIEWS = (child.table for child in USER_ACTIVITY.children)
NOTES = Table("user_activity", "notes")

UUID = Column("uuid", "U", builtin=True, labels=(), readable=True)
TEXT = Column("text", "S", builtin=True, labels=(), readable=True)
INSTANT = Column("timestamp with time zone", "D", builtin=True, labels=(), readable=True)
STATUS = Column("user_activity.status", "E", builtin=False, labels=("Active", "Inactive"), readable=True)


def relation(**columns: Column) -> Relation:
    return Relation(
        kind="table",
        rows=1000,
        hides_rows=False,
        may_use_schema=True,
        may_delete=True,
        may_lock=True,
        columns=columns,
    )


def key(table: Table, column: str, target: Table, on_delete: str, *, indexed: bool = True) -> ForeignKey:
    return ForeignKey(f"{table.name}_{column}_fkey", table, (column,), target, on_delete, indexed)


KEYS = (
    key(EVENTS, "session_id", SESSIONS, "RESTRICT"),
    key(VIEWS, "session_id", SESSIONS, "RESTRICT"),
    key(EVENTS, "property_object_view_id", VIEWS, "SET NULL"),
    key(VIEWS, "apply_filter_event_id", EVENTS, "SET NULL"),
)
SOUND = Facts(
    role="activity_retention",
    relations={
        SESSIONS: relation(id=UUID, status=TEXT, ended_at=INSTANT),
        VIEWS: relation(id=UUID, session_id=UUID),
        EVENTS: relation(id=UUID, session_id=UUID),
    },
    foreign_keys=KEYS,
    references={(EVENTS, "session_id"): True, (VIEWS, "session_id"): True},
)


def changed(table: Table, **changes: object) -> Facts:
    """The sound facts with one table that differs."""
    relations = {**SOUND.relations, table: replace(SOUND.relations[table], **changes)}  # type: ignore[arg-type]
    return replace(SOUND, relations=relations)


def with_columns(table: Table, columns: Mapping[str, Column | None]) -> Facts:
    """The sound facts with columns that differ, or are not there."""
    merged = {**SOUND.relations[table].columns, **columns}
    return changed(table, columns={name: column for name, column in merged.items() if column})


def with_keys(*keys: ForeignKey) -> Facts:
    return replace(SOUND, foreign_keys=(*KEYS, *keys))


def only(facts: Facts, policy: Policy = USER_ACTIVITY) -> Finding:
    """The one finding."""
    (finding,) = findings(policy, facts)
    return finding


def ids(found: Iterable[Finding]) -> list[str]:
    return [finding.id for finding in found]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert findings(USER_ACTIVITY, SOUND) == ()


def test_a_missing_table_is_one_error_and_not_one_for_each_of_its_columns() -> None:
    relations = {name: relation for name, relation in SOUND.relations.items() if name != EVENTS}
    found = only(replace(SOUND, relations=relations))
    assert (found.id, found.level) == ("missing_table", "error")
    assert found.message == "there is no table user_activity.action_events"
    assert "activity-retention schema | psql" in found.mend


def test_all_missing_tables_are_named_at_once() -> None:
    found = findings(USER_ACTIVITY, Facts("activity_retention", {}, (), {}))
    assert [finding.message for finding in found] == [
        f"there is no table {table}" for table in USER_ACTIVITY.tables
    ]


@pytest.mark.parametrize("kind", ["view", "materialized view", "foreign table"])
def test_only_a_table_can_lose_rows(kind: str) -> None:
    found = only(changed(SESSIONS, kind=kind))
    assert (found.id, found.level) == ("not_a_table", "error")
    assert found.message == f"user_activity.sessions is a {kind}"


@pytest.mark.parametrize(
    ("table", "changes", "right", "mend"),
    [
        (
            EVENTS,
            {"may_use_schema": False},
            "USAGE on the schema",
            "GRANT USAGE ON SCHEMA user_activity TO activity_retention;",
        ),
        (
            EVENTS,
            {"columns": {"session_id": replace(UUID, readable=False)}},
            "SELECT",
            "GRANT SELECT ON user_activity.action_events TO activity_retention;",
        ),
        (
            VIEWS,
            {"may_delete": False},
            "DELETE",
            "GRANT DELETE ON user_activity.property_object_views TO activity_retention;",
        ),
        (
            SESSIONS,
            {"may_lock": False},
            "UPDATE on some column, which FOR UPDATE needs",
            "GRANT UPDATE (status) ON user_activity.sessions TO activity_retention;",
        ),
    ],
)
def test_a_missing_right_is_an_error_that_prints_its_grant(
    table: Table, changes: Mapping[str, object], right: str, mend: str
) -> None:
    """Case F4."""
    found = only(changed(table, **changes))
    assert (found.id, found.level) == ("missing_privilege", "error")
    assert found.message == f"role activity_retention lacks {right} on {table}"
    assert found.mend == mend


def test_all_rights_that_a_table_lacks_are_one_finding() -> None:
    found = only(changed(SESSIONS, may_use_schema=False, may_delete=False, may_lock=False))
    assert found.mend.count("GRANT") == 3


def test_a_child_needs_no_right_to_update() -> None:
    assert findings(USER_ACTIVITY, changed(EVENTS, may_lock=False)) == ()


def test_a_column_that_the_job_does_not_read_may_be_unreadable() -> None:
    assert findings(USER_ACTIVITY, with_columns(EVENTS, {"id": replace(UUID, readable=False)})) == ()


def test_a_role_whose_name_needs_quotes_is_quoted_in_the_grant() -> None:
    found = only(replace(changed(VIEWS, may_delete=False), role='Night "Job"'))
    assert found.mend == 'GRANT DELETE ON user_activity.property_object_views TO "Night ""Job""";'


def test_row_security_that_hides_rows_is_an_error() -> None:
    found = only(changed(SESSIONS, hides_rows=True))
    assert (found.id, found.level) == ("row_security", "error")
    assert found.mend == "ALTER ROLE activity_retention BYPASSRLS;"


@pytest.mark.parametrize(("table", "column"), [(SESSIONS, "id"), (SESSIONS, "ended_at"), (EVENTS, "session_id")])
def test_a_missing_column_is_an_error_that_lists_those_there_are(table: Table, column: str) -> None:
    found = only(with_columns(table, {column: None, "other": TEXT}))
    assert (found.id, found.level) == ("missing_column", "error")
    assert found.message == f"{table} has no column {column}"
    assert "other" in found.mend


@pytest.mark.parametrize("kind", ["timestamp without time zone", "date", "bigint", "text"])
def test_only_an_instant_can_anchor_an_age(kind: str) -> None:
    found = only(with_columns(SESSIONS, {"ended_at": replace(INSTANT, type=kind)}))
    assert (found.id, found.level) == ("anchor_type", "error")
    assert kind in found.message


def test_a_state_that_the_enum_does_not_know_is_an_error() -> None:
    """Case F8."""
    found = only(with_columns(SESSIONS, {"status": replace(STATUS, labels=("active", "inactive"))}))
    assert (found.id, found.level) == ("state_unknown", "error")
    assert "active, inactive" in found.why


def test_a_state_that_the_enum_knows_is_sound() -> None:
    assert findings(USER_ACTIVITY, with_columns(SESSIONS, {"status": STATUS})) == ()


@pytest.mark.parametrize(
    "status",
    [
        Column("integer", "N", builtin=True, labels=(), readable=True),
        Column("boolean", "B", builtin=True, labels=(), readable=True),
        Column("public.citext", "S", builtin=False, labels=(), readable=True),
    ],
)
def test_a_state_that_cannot_be_compared_with_text_safely_is_an_error(status: Column) -> None:
    """Case F8: a bare = under a pinned search path matched no row of a citext status, in silence."""
    found = only(with_columns(SESSIONS, {"status": status}))
    assert (found.id, found.level) == ("state_type", "error")


@pytest.mark.parametrize(
    ("action", "loss"),
    [("CASCADE", "deletes its rows"), ("SET NULL", "rewrites its rows"), ("SET DEFAULT", "rewrites its rows")],
)
@pytest.mark.parametrize("target", [SESSIONS, VIEWS, EVENTS])
def test_a_foreign_key_that_would_lose_rows_of_others_is_an_error(action: str, loss: str, target: Table) -> None:
    """Case B8."""
    found = only(with_keys(key(NOTES, "owner_id", target, action)))
    assert (found.id, found.level) == ("foreign_key_loses_data", "error")
    assert "user_activity.notes" in found.message
    assert "notes_owner_id_fkey" in found.message
    assert loss in found.why
    assert found.mend == (
        "ALTER TABLE user_activity.notes DROP CONSTRAINT notes_owner_id_fkey, "
        f"ADD CONSTRAINT notes_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES {target} ON DELETE RESTRICT;"
    )


@pytest.mark.parametrize("action", ["RESTRICT", "NO ACTION"])
def test_a_foreign_key_that_blocks_is_a_warning_that_names_it(action: str) -> None:
    """Case B1."""
    found = only(with_keys(key(NOTES, "session_id", SESSIONS, action)))
    assert (found.id, found.level) == ("foreign_key_blocks", "warning")
    assert "user_activity.notes" in found.message
    assert "notes_session_id_fkey" in found.message


def test_a_foreign_key_without_index_is_a_warning_that_prints_the_index() -> None:
    """Case A3."""
    unindexed = tuple(replace(one, indexed=one.columns != ("property_object_view_id",)) for one in KEYS)
    found = only(replace(SOUND, foreign_keys=unindexed))
    assert (found.id, found.level) == ("foreign_key_without_index", "warning")
    assert "property_object_view_id" in found.message
    assert found.mend == "CREATE INDEX CONCURRENTLY ON user_activity.action_events (property_object_view_id);"


def test_a_reference_without_index_is_told_once_although_it_is_a_foreign_key_as_well() -> None:
    facts = replace(
        SOUND,
        foreign_keys=tuple(replace(one, indexed=one.table != EVENTS or one.target != SESSIONS) for one in KEYS),
        references={**SOUND.references, (EVENTS, "session_id"): False},
    )
    found = only(facts)
    assert (found.id, found.level) == ("reference_without_index", "warning")
    assert found.mend == "CREATE INDEX CONCURRENTLY ON user_activity.action_events (session_id);"


def test_a_foreign_key_may_be_wrong_in_two_ways() -> None:
    found = findings(USER_ACTIVITY, with_keys(key(NOTES, "session_id", SESSIONS, "CASCADE", indexed=False)))
    assert ids(found) == ["foreign_key_loses_data", "foreign_key_without_index"]


def test_errors_come_before_warnings() -> None:
    facts = with_keys(
        key(NOTES, "a", SESSIONS, "RESTRICT"),
        key(NOTES, "b", SESSIONS, "CASCADE"),
        key(NOTES, "c", SESSIONS, "NO ACTION"),
    )
    assert [found.level for found in findings(USER_ACTIVITY, facts)] == ["error", "warning", "warning"]


def test_names_in_the_mending_sql_are_quoted_where_they_must_be() -> None:
    events = Table("Mixed", 'Ev"ents')
    policy = replace(USER_ACTIVITY, children=(Child(events, "SessionId", "deletedEvents"),))
    facts = replace(
        SOUND,
        relations={SESSIONS: SOUND.relations[SESSIONS], events: relation(SessionId=UUID)},
        foreign_keys=(),
        references={(events, "SessionId"): False},
    )
    assert only(facts, policy).mend == 'CREATE INDEX CONCURRENTLY ON "Mixed"."Ev""ents" ("SessionId");'


ROOT_SCANNED = (Scan(SESSIONS, None), Scan(EVENTS, "action_events_session_id_idx"))
ROOT_INDEXED = (Scan(SESSIONS, "sessions_inactive_ended_at_idx"), Scan(EVENTS, None))
LARGE = 2_000_000


def test_a_selection_that_reads_the_whole_table_is_a_warning() -> None:
    (found,) = selection_findings(USER_ACTIVITY, LARGE, ROOT_SCANNED)
    assert (found.id, found.level) == ("selection_without_index", "warning")
    assert "2,000,000 rows" in found.why
    assert found.mend == (
        "CREATE INDEX CONCURRENTLY ON user_activity.sessions (ended_at) WHERE status = 'Inactive';"
    )


def test_a_selection_by_an_index_is_sound_and_so_is_reading_a_small_table_whole() -> None:
    assert selection_findings(USER_ACTIVITY, LARGE, ROOT_INDEXED) == ()
    assert selection_findings(USER_ACTIVITY, 10_000, ROOT_SCANNED) == ()


def test_a_state_with_a_quote_is_escaped_in_the_mending_sql() -> None:
    policy = replace(USER_ACTIVITY, state="it's over")
    (found,) = selection_findings(policy, LARGE, ROOT_SCANNED)
    assert found.mend.endswith("WHERE status = 'it''s over';")


def test_a_finding_reads_as_one_sentence_with_its_mending() -> None:
    assert str(Finding("id", "error", "a is wrong", "b happens", "DO c;")) == "a is wrong: b happens. Mend: DO c;"
