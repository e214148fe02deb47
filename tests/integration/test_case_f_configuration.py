"""Cases F: wrong settings and missing rights are refused at once, by name, and before anything is deleted."""

import re

import psycopg
import pytest

from activity_retention.config import load_settings
from activity_retention.errors import Refused
from activity_retention.result import RunResult
from activity_retention.sql import read_sql
from tests.database import Database

JOB = "activity_retention"


def test_all_settings_that_would_wipe_everything_are_refused_in_one_answer(database: Database) -> None:
    """Case F1."""
    database.session(views=1, events=1)

    with pytest.raises(Refused) as refused:
        database.run(retention_period="0", batch_size="0", max_batches_per_run="0", max_run_duration="-1")

    assert len(refused.value.reasons) == 4
    for reason, key in zip(
        sorted(refused.value.reasons),
        ("batch_size = '0'", "max_batches_per_run = '0'", "max_run_duration = '-1'", "retention_period = '0'"),
        strict=True,
    ):
        assert reason.startswith(key)
    assert database.counts() == (1, 1, 1)


@pytest.mark.parametrize("period", ["0", "0d", "-1", "-1d", "", "abc", "1000000000d", "1e9", "0.5", "0.5d"])
def test_no_wrong_retention_period_deletes_anything(database: Database, period: str) -> None:
    """Case F1."""
    database.session()

    with pytest.raises(Refused, match="retention_period = "):
        database.run(retention_period=period)

    assert database.count("sessions") == 1


def test_the_longest_retention_period_keeps_everything_and_overflows_nothing(database: Database) -> None:
    """Case F1: a thousand years."""
    database.session()

    result = database.run(retention_period="365000d")

    assert (result.outcome, result.rows, database.count("sessions")) == ("completed", 0, 1)
    assert result.cutoff is not None
    assert result.cutoff.startswith("10")


def test_the_forms_of_one_period_mean_the_same_cutoff() -> None:
    """Case F3."""
    forms = ("365d", "8760h", "P365D", "PT8760H", "365.00:00:00")
    assert len({load_settings({"retention_period": form}, environ={}).settings for form in forms}) == 1


@pytest.mark.parametrize("period", ["30", "1 mon", "P1M"])
def test_a_period_that_means_different_things_to_different_readers_is_refused(period: str) -> None:
    """Case F3."""
    with pytest.raises(Refused, match="retention_period = "):
        load_settings({"retention_period": period}, environ={})


def test_a_batch_beyond_the_limit_is_refused_and_one_at_the_limit_works(database: Database) -> None:
    """Case D13: ids travel as one array, never as a parameter each."""
    database.expired(3)

    with pytest.raises(Refused, match=r"batch_size = '50001' .*: write a whole number from 1 to 50000"):
        database.run(batch_size="50001")
    assert database.count("sessions") == 3

    assert database.run(batch_size="50000").rows == 3


def test_fifty_thousand_ids_fit_into_one_list(database: Database) -> None:
    """Case D13: a batch is tried again by the list of its ids, and that list has no limit of 65,535 parameters."""
    database.expired(50_000)
    database.execute("CREATE SEQUENCE public.attempts")
    database.before(
        "DELETE",
        "sessions",
        f"IF OLD.id = '{database.oldest()}' AND nextval('public.attempts') = 1 THEN RAISE EXCEPTION 'once'; END IF",
    )

    result = database.run(batch_size="50000")

    assert (result.outcome, result.rows, result.batches_processed) == ("completed", 50_000, 1)
    assert result.retries == 1


def as_the_jobs_role(database: Database) -> RunResult:
    return database.run(database_url=database.url(JOB))


def test_the_grants_of_the_packaged_role_are_enough(database: Database) -> None:
    """Case F4: SELECT and DELETE, and UPDATE on one column, which a row lock demands."""
    database.session(views=2, events=3)

    result = as_the_jobs_role(database)

    assert (result.outcome, result.failure, database.counts()) == ("completed", None, (0, 0, 0))


def test_the_role_can_do_nothing_else(database: Database) -> None:
    """Case F4."""
    with database.connect(user=JOB) as connection:
        for statement in (
            "SELECT FROM user_activity.property_object_view_stats",
            "DELETE FROM user_activity.property_object_view_stats",
            "UPDATE user_activity.sessions SET ended_at = now()",
            "UPDATE user_activity.action_events SET payload = NULL",
            "INSERT INTO user_activity.sessions (id) VALUES (NULL)",
            "TRUNCATE user_activity.action_events",
            "CREATE TABLE user_activity.mine ()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_the_script_of_the_role_may_be_run_again(database: Database) -> None:
    database.execute(read_sql("role"))
    assert as_the_jobs_role(database).outcome == "completed"


@pytest.mark.parametrize(
    ("revoked", "lacks", "on"),
    [
        ("SELECT ON user_activity.sessions", "SELECT", "user_activity.sessions"),
        ("SELECT ON user_activity.property_object_views", "SELECT", "user_activity.property_object_views"),
        ("SELECT ON user_activity.action_events", "SELECT", "user_activity.action_events"),
        ("DELETE ON user_activity.sessions", "DELETE", "user_activity.sessions"),
        ("DELETE ON user_activity.property_object_views", "DELETE", "user_activity.property_object_views"),
        ("DELETE ON user_activity.action_events", "DELETE", "user_activity.action_events"),
        ("UPDATE (status) ON user_activity.sessions", "UPDATE", "user_activity.sessions"),
        ("USAGE ON SCHEMA user_activity", "USAGE", "user_activity.sessions"),
        ("ALL ON ALL TABLES IN SCHEMA user_activity", "SELECT, DELETE, UPDATE", "user_activity.sessions"),
    ],
)
def test_a_missing_right_is_refused_by_its_name_with_the_grant_that_mends_it(
    database: Database, revoked: str, lacks: str, on: str
) -> None:
    """Case F4."""
    database.session(views=1, events=1)
    database.execute(f"REVOKE {revoked} FROM {JOB}")

    refused = as_the_jobs_role(database)

    assert (refused.outcome, refused.rows, refused.has_more) == ("refused", 0, None)
    assert refused.failure is not None
    assert refused.failure.kind == "refused"
    assert re.search(rf"role {JOB} lacks {lacks}\b.* on {on}", refused.failure.message)
    assert database.counts() == (1, 1, 1)

    for grant in re.findall(r"GRANT [^;]+;", refused.failure.message):
        database.execute(grant)
    assert (as_the_jobs_role(database).outcome, database.counts()) == ("completed", (0, 0, 0))
