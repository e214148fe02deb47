"""The commands that only look: plan, status, config, schema."""

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.sandbox.server import PrivateServer
from tests.acceptance.conftest import Command
from tests.database import Database


def test_plan_agrees_with_the_run_that_follows(database: Database, command: Command) -> None:
    for days in (370, 400, 700):
        database.session(ended=f"{days} days", views=2, events=3)
    database.session(ended="100 days", views=1)
    database.session(ended="900 days", status="Active", views=1)
    arguments = ("--json", "--database-url", database.url(), "--batch-size", "2", "--max-batches-per-run", "1")

    plan = json.loads(command("plan", "--sql", *arguments).stdout)

    assert database.counts() == (5, 8, 9)
    assert (plan["eligibleBacklog"], plan["roots"], plan["share"]) == (3, 5, 0.6)
    assert (plan["batches"], plan["runs"]) == (2, 2)
    assert {table: count["rows"] for table, count in plan["rows"].items()} == {
        "user_activity.action_events": 9,
        "user_activity.property_object_views": 6,
        "user_activity.sessions": 3,
    }
    assert plan["oldest"] == database.value(
        "SELECT to_json(min(ended_at)) #>> '{}' FROM user_activity.sessions WHERE status = 'Inactive'"
    )
    assert sum(bar["roots"] for bar in plan["histogram"]["bars"] if bar["expired"]) == 3
    assert sum(bar["roots"] for bar in plan["histogram"]["bars"] if not bar["expired"]) == 1
    # The statement that is shown is the one that runs: executed as it stands, it deletes the first batch.
    with database.connect() as connection:
        row = connection.execute(plan["statement"].encode()).fetchone()
    assert row is not None
    assert (row[0], row[1], row[3:]) == (True, 2, (6, 4, 2))


def test_plan_draws_the_ages_with_the_cutoff_marked(database: Database, command: Command) -> None:
    database.session(ended="350 days")
    database.session(ended="380 days")

    shown = command("plan", "--database-url", database.url()).stdout.splitlines()

    cutoff = next(number for number, line in enumerate(shown) if line.lstrip().startswith("cutoff  ─"))
    assert shown[cutoff - 1].split() == ["335–365", "d", "█" * 40, "1"]
    assert shown[cutoff + 1].split() == ["365–395", "d", "█" * 40, "1"]
    assert any("sessions_inactive_ended_at_idx" in line for line in shown)
    assert any("1 batch of up to 5,000 in 1 run of at most 30m" in line for line in shown)


def test_plan_names_what_will_be_slow(database: Database, command: Command) -> None:
    database.execute("DROP INDEX user_activity.action_events_property_object_view_id_idx")

    plan = json.loads(command("plan", "--json", "--database-url", database.url()).stdout)

    (finding,) = plan["findings"]
    assert (finding["id"], finding["level"]) == ("foreign_key_without_index", "warning")
    assert finding["mend"] == (
        "CREATE INDEX CONCURRENTLY ON user_activity.action_events (property_object_view_id);"
    )


A_RUN = "activity-retention 7f0c0e5e-5a0f-4c43-8a0c-3c1a5e0f2b11"


def holding(database: Database, application: str, user: str = "postgres") -> int:
    """The pid of a session with this name that holds the lock."""
    session = database.connect(user=user)
    session.execute("SELECT set_config('application_name', %s, false)", [application])
    session.execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])
    return session.info.backend_pid


def test_status_tells_who_holds_the_lock(database: Database, command: Command) -> None:
    """Case C16: a stranger is told from a run."""
    database.session()
    pid = holding(database, "somebody else")

    status = json.loads(command("status", "--json", "--database-url", database.url()).stdout)

    assert (status["eligibleBacklog"], "reasons" in status) == (1, False)
    assert status["lock"]["name"] == "job:scheduled:activity-retention"
    held = status["lock"]["holder"]
    assert (held["pid"], held["application"], held["user"]) == (pid, "somebody else", "postgres")
    assert (held["client"], held["state"]) == ("127.0.0.1", "idle")
    assert held["query"].startswith("SELECT pg_advisory_lock")
    assert held["connectedSeconds"] >= held["stateSeconds"] >= 0
    assert held["what"].startswith("no session of activity-retention")
    assert (held["free"], held["hidden"], held["reveal"]) == (f"SELECT pg_terminate_backend({pid});", False, None)

    shown = command("status", "--database-url", database.url()).stdout
    assert f"SELECT pg_terminate_backend({pid});" in shown
    assert "no session of activity-retention" in shown


def test_status_tells_a_run_at_work_from_one_that_hangs(database: Database, command: Command) -> None:
    holding(database, A_RUN)

    def what(max_run_duration: str) -> str:
        status = command(
            *("status", "--json", "--database-url", database.url(), "--max-run-duration", max_run_duration)
        )
        return str(json.loads(status.stdout)["lock"]["holder"]["what"])

    assert what("1h").startswith("a run at work")
    assert what("1ms").startswith("older than a run may get (1ms)")


@pytest.mark.parametrize("application", ["somebody else", A_RUN])
def test_status_says_when_the_holder_is_hidden_from_the_role(
    database: Database, command: Command, application: str
) -> None:
    pid = holding(database, application)
    mine = ("--database-url", database.url("activity_retention"))

    status = json.loads(command("status", "--json", *mine).stdout)

    held = status["lock"]["holder"]
    assert (held["pid"], held["application"], held["hidden"]) == (pid, application, True)
    assert (held["query"], held["since"], held["connectedSeconds"]) == (None, None, None)
    assert held["reveal"] == 'GRANT pg_read_all_stats TO "activity_retention";'
    shown = " ".join(command("status", *mine).stdout.split())
    assert f"is hidden from this role: {held['reveal']}" in shown
    assert held["what"] in shown


def test_status_shows_the_holder_although_the_rows_are_out_of_reach(database: Database, command: Command) -> None:
    """Both troubles at once, and the exit code of the one that no waiting mends."""
    database.execute("DROP TABLE user_activity.action_events CASCADE")
    database.execute("REVOKE SELECT, DELETE ON user_activity.sessions FROM activity_retention")
    pid = holding(database, "somebody else")
    mine = ("--database-url", database.url("activity_retention"))

    status = json.loads(command("status", "--json", *mine, code=2).stdout)

    assert (status["outcome"], status["failure"]["kind"], status["eligibleBacklog"]) == ("refused", "refused", None)
    assert len(status["reasons"]) == 2
    assert status["lock"]["holder"]["pid"] == pid
    shown = command("status", *mine, code=2)
    assert f"SELECT pg_terminate_backend({pid});" in shown.stdout
    assert "Backlog   unknown" in shown.stdout
    assert "there is no table user_activity.action_events" in shown.stderr
    assert "lacks SELECT, DELETE on user_activity.sessions" in shown.stderr


def test_config_says_where_each_value_came_from(database: Database, command: Command, tmp_path: Path) -> None:
    (tmp_path / "activity-retention.toml").write_text('version = 1\nbatch_size = 10\nlock_timeout = "1s"\n')

    done = command(
        *("config", "--json", "--batch-size", "20"),
        env={"ACTIVITY_RETENTION_DATABASE_URL": database.url(), "ACTIVITY_RETENTION_LOCK_TIMEOUT": "2s"},
    )

    said = json.loads(done.stdout)
    assert said["settings"]["batch_size"] == {"value": 20, "source": "--batch-size"}
    assert said["settings"]["lock_timeout"] == {"value": "2s", "source": "ACTIVITY_RETENTION_LOCK_TIMEOUT"}
    assert said["settings"]["retention_period"] == {"value": "365d", "source": "default"}
    assert said["settings"]["database_url"]["value"] == "(hidden)"
    assert len(said["nextRuns"]) == 5
    assert all(fire.endswith("T03:00:00+03:00") for fire in said["nextRuns"])
    assert database.value(
        "SELECT now() - interval '365 days' - %s::timestamptz < interval '1 minute'", [said["cutoff"]]
    )


def test_config_without_a_database_still_shows_the_settings(command: Command) -> None:
    shown = command("config").stdout

    assert "retention_period" in shown
    assert "No database given" in shown


def test_the_json_schema_knows_every_setting(command: Command) -> None:
    schema = json.loads(command("config", "--json-schema").stdout)
    said = json.loads(command("config", "--json").stdout)

    assert set(schema["properties"]) == {"version", *said["settings"]}


def test_psql_takes_the_schema(server: PrivateServer, command: Command) -> None:
    """And the job finds nothing to complain about in it."""
    psql = server.binaries / "psql"
    if not psql.exists():
        pytest.fail(f"there is no psql beside {server.binaries}")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE from_psql")
    sql = command("schema").stdout
    for _ in range(2 if "IF NOT EXISTS user_activity.sessions" in sql else 1):
        subprocess.run(
            [psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet", "--file=-", server.url("from_psql")],
            input=sql,
            text=True,
            check=True,
        )

    plan = json.loads(command("plan", "--json", "--database-url", server.url("from_psql")).stdout)

    assert (plan["findings"], plan["eligibleBacklog"]) == ([], 0)


def test_schema_prints_one_part_where_told(command: Command) -> None:
    role = command("schema", "--only", "role").stdout

    assert "CREATE ROLE activity_retention" in role
    assert "CREATE TABLE" not in role
