"""Every name in a statement is quoted, every value a parameter, and the state an escaped literal (case F7)."""

import re

import pytest
from psycopg.sql import Composed

from activity_retention import statements
from activity_retention.policy import USER_ACTIVITY, Child, Policy, Table

HOSTILE = 'x"; DROP TABLE "sessions'
LONGEST = "n" * 63

STRANGE = Policy(
    name="strange",
    root=Table("Mixed Case", HOSTILE),
    key="Id",
    anchor="EndedAt",
    state_column="Status",
    state="it's \\ over",
    counter="deletedRoots",
    children=(
        Child(Table(HOSTILE, "Events"), "SessionId", "deletedEvents"),
        Child(Table("Mixed Case", LONGEST), HOSTILE, "deletedViews"),
    ),
)


def text(query: Composed) -> str:
    return query.as_string(None)


def every_statement(policy: Policy) -> list[str]:
    flags = (False, True)
    return [
        *(
            text(statements.batch(policy, floor=floor, listed=listed, leaving=leaving))
            for floor in flags
            for listed in flags
            for leaving in flags
        ),
        *(text(statements.pick(policy, floor=floor, leaving=leaving)) for floor in flags for leaving in flags),
        text(statements.backlog(policy)),
        text(statements.any_expired(policy)),
    ]


STATEMENTS = every_statement(STRANGE)


@pytest.mark.parametrize("query", STATEMENTS)
def test_a_name_with_quotes_stays_one_name(query: str) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    assert quoted in query
    assert HOSTILE not in query.replace(quoted, "")


@pytest.mark.parametrize("query", STATEMENTS)
def test_mixed_case_names_are_quoted_wherever_they_stand(query: str) -> None:
    bare = re.sub(r'"(?:[^"]|"")*"', "", query)
    for name in ("Mixed", "EndedAt", "Status", "SessionId", "Events"):
        assert name not in bare


@pytest.mark.parametrize("query", STATEMENTS)
def test_the_state_is_an_escaped_literal(query: str) -> None:
    """Case A9: a literal, so that a generic plan still finds the partial index."""
    assert "\"Status\" =  E'it''s \\\\ over'" in query


@pytest.mark.parametrize("query", STATEMENTS)
def test_the_predicate_of_deletion_is_the_same_everywhere(query: str) -> None:
    assert query.count('"EndedAt" < %(cutoff)s::timestamptz') == 1


def test_a_name_of_63_bytes_is_kept_whole() -> None:
    assert f'"{LONGEST}"' in text(statements.batch(STRANGE))


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, {"key", "cutoff", "size"}),
        ({"floor": True}, {"key", "cutoff", "size", "floor"}),
        ({"listed": True}, {"key", "cutoff", "size", "ids"}),
        ({"leaving": True}, {"key", "cutoff", "size", "left"}),
    ],
)
def test_a_batch_asks_for_the_values_it_uses(options: dict[str, bool], parameters: set[str]) -> None:
    assert set(re.findall(r"%\((\w+)\)s", text(statements.batch(USER_ACTIVITY, **options)))) == parameters


@pytest.mark.parametrize("query", every_statement(USER_ACTIVITY))
def test_only_whole_table_and_column_names_of_the_policy_appear(query: str) -> None:
    known = {
        *("user_activity", "sessions", "property_object_views", "action_events"),
        *("id", "ended_at", "status", "session_id"),
        *("delete_1", "delete_2", "delete_3", "done_1", "done_2", "done_3"),
    }
    assert set(re.findall(r'"([^"]*)"', query)) <= known


def test_children_go_in_the_order_of_the_policy_and_the_root_last() -> None:
    """R-ALG-4: each step waits for the count of the one before."""
    query = text(statements.batch(USER_ACTIVITY))
    order = re.findall(r'DELETE FROM "user_activity"\."(\w+)"', query)
    assert order == ["action_events", "property_object_views", "sessions"]
    assert re.findall(r'\(SELECT n FROM "(done_\d)"\) >= 0', query) == ["done_1", "done_2"]


def test_the_pick_is_materialized_locked_and_skips_what_others_hold() -> None:
    """Case C3: a sub-select that is run again deletes more than the batch."""
    query = text(statements.batch(USER_ACTIVITY))
    assert '\nbatch AS MATERIALIZED (\n    SELECT "id", "ended_at"' in query
    assert query.count("LIMIT %(size)s\n       FOR UPDATE SKIP LOCKED") == 1


def test_the_backlog_and_the_question_what_is_left_lock_nothing() -> None:
    for query in (statements.backlog(USER_ACTIVITY), statements.any_expired(USER_ACTIVITY)):
        assert "FOR UPDATE" not in text(query)
