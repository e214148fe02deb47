"""Bad input and bad luck: a clear sentence, the right exit code, nothing changed, no password shown."""

import json
from pathlib import Path

import psycopg
import pytest

from activity_retention.policy import USER_ACTIVITY
from activity_retention.sandbox.server import private_server
from tests.acceptance.conftest import Command
from tests.database import Database

SECRET = "s3cret-of-the-test"


def test_every_fault_is_named_in_one_answer(command: Command, tmp_path: Path) -> None:
    """R-CFG-1, case F1: key, value, where it came from, what is allowed, the nearest key."""
    (tmp_path / "activity-retention.toml").write_text('version = 1\nbatch_sise = 10\nlock_timeout = "5"\n')

    done = command(
        *("run", "--json", "--batch-size", "0", "--retention-period", "-1d", "--time-zone", "Europe/Moskow"),
        env={"ACTIVITY_RETENTION_MAX_BATCHES_PER_RUN": "none", "ACTIVITY_RETENTION_DATABSE_URL": "x"},
        code=2,
    )

    said = json.loads(done.stdout)
    assert (said["outcome"], said["failure"]["kind"]) == ("refused", "refused")
    expected = [
        "batch_sise in activity-retention.toml is not a setting: did you mean batch_size?",
        "ACTIVITY_RETENTION_DATABSE_URL in the environment is not a setting: did you mean "
        "ACTIVITY_RETENTION_DATABASE_URL?",
        "batch_size = '0' (--batch-size): write a whole number from 1 to 50000",
        "max_batches_per_run = 'none' (ACTIVITY_RETENTION_MAX_BATCHES_PER_RUN): write a whole number of at least 1",
    ]
    assert set(expected) <= set(said["reasons"])
    assert len(said["reasons"]) == 7
    for reason in said["reasons"]:
        assert reason in done.stderr


@pytest.mark.parametrize("arguments", [["doctor"], ["run", "--parallelism", "2"], ["run", "--batch-pause", "1s"]])
def test_what_is_not_built_is_unknown(command: Command, arguments: list[str]) -> None:
    done = command(*arguments, code=2)

    assert done.stderr.startswith("activity-retention: No such ")


def test_no_database_given(command: Command) -> None:
    done = command("run", code=2)

    assert "No database given: set --database-url" in done.stderr


@pytest.mark.parametrize("arguments", [["run", "--batch-retries", "0"], ["plan"], ["status"]])
def test_an_unreachable_database_is_worth_a_retry(command: Command, arguments: list[str]) -> None:
    url = f"postgresql://somebody:{SECRET}@127.0.0.1:1/nowhere"

    done = command(*arguments, "--json", env={"ACTIVITY_RETENTION_DATABASE_URL": url}, code=1)

    said = json.loads(done.stdout)
    assert (said["outcome"], said["failure"]["kind"]) == ("failed", "transient")
    assert "cannot be reached" in said["failure"]["message"]
    assert SECRET not in done.stdout + done.stderr


def test_a_database_or_a_role_that_does_not_exist_is_refused(database: Database, command: Command) -> None:
    for url in (database.server.url("no_such_database"), database.url("no_such_role")):
        done = command("run", "--database-url", url, code=2)

        assert "does not exist" in done.stderr


def test_a_wrong_password_is_refused_and_not_shown(binaries: Path | None, command: Command) -> None:
    with private_server(binaries) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE job LOGIN PASSWORD 'the right one'")
        (server.data_directory / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        server.restart()
        url = server.url(user="job")

        wrong = command("run", "--json", env=variable(url.replace("job@", f"job:{SECRET}@")), code=2)
        assert "password authentication failed" in json.loads(wrong.stdout)["failure"]["message"]
        assert SECRET not in wrong.stdout + wrong.stderr

        missing = command("plan", env=variable(url), code=2)
        assert "no password supplied" in missing.stderr

        right = command("status", "--json", env=variable(url.replace("job@", "job:the%20right%20one@")), code=2)
        assert "there is no table user_activity.sessions" in right.stdout


def variable(url: str) -> dict[str, str]:
    return {"ACTIVITY_RETENTION_DATABASE_URL": url}


def test_libpqs_variables_serve_where_no_url_is_given(database: Database, command: Command) -> None:
    database.session()
    server = database.server
    where = {"PGHOST": server.host, "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": database.name}

    done = command("run", "--json", env=where)

    assert json.loads(done.stdout)["deletedSessions"] == 1


def test_a_password_is_never_shown(database: Database, command: Command) -> None:
    """Given on the command line, it is warned of; and a broken URL is not quoted."""
    url = database.url().replace("postgres@", f"postgres:{SECRET}@")

    done = command("config", "--database-url", url)
    assert "visible in ps" in done.stderr
    assert SECRET not in done.stdout + done.stderr

    for broken in (f"postgresql://u:{SECRET}@@h/db", f"postgresql://h:{SECRET}/db", f"{SECRET} x"):
        done = command("run", "--database-url", broken, code=2)
        assert "database_url = (hidden)" in done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_a_database_url_file_is_read_or_named(database: Database, command: Command, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(database.url() + "\n")
    command("run", "--database-url-file", "url")

    done = command("run", "--database-url-file", "missing", code=2)
    assert "database_url_file = 'missing': No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "No such file or directory"),
        ("batch_size = 10", "version is missing"),
        ("version = 2", "version is 2"),
        ("version = 1\n[job]\n", "job in settings.toml is not a setting"),
        ("version = ", "is not TOML"),
    ],
)
def test_a_settings_file_that_cannot_serve(
    command: Command, tmp_path: Path, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "settings.toml").write_text(content)

    assert sentence in command("run", "--config", "settings.toml", code=2).stderr


def test_missing_tables_and_columns_are_named_at_once(database: Database, command: Command) -> None:
    database.execute("DROP TABLE user_activity.action_events CASCADE")
    database.execute("ALTER TABLE user_activity.sessions RENAME COLUMN ended_at TO closed_at")

    done = command("run", "--database-url", database.url(), code=2)

    assert "there is no table user_activity.action_events" in done.stderr
    assert "user_activity.sessions has no column ended_at" in done.stderr


def test_missing_rights_are_named_with_the_grants_that_mend_them(database: Database, command: Command) -> None:
    """Case F4."""
    session = database.session()
    database.execute("REVOKE UPDATE (status), DELETE ON user_activity.sessions FROM activity_retention")

    done = command("run", "--database-url", database.url("activity_retention"), code=2)

    assert "role activity_retention lacks DELETE, UPDATE on some column" in done.stderr
    assert "GRANT DELETE ON user_activity.sessions TO activity_retention;" in done.stderr
    assert "GRANT UPDATE (status) ON user_activity.sessions TO activity_retention;" in done.stderr
    assert database.value("SELECT id FROM user_activity.sessions") == session


def test_row_level_security_that_hides_rows_is_refused(database: Database, command: Command) -> None:
    database.execute("ALTER TABLE user_activity.sessions ENABLE ROW LEVEL SECURITY")

    done = command("run", "--database-url", database.url("activity_retention"), code=2)

    assert "row-level security applies to role activity_retention on user_activity.sessions" in done.stderr


def test_a_read_only_database_is_refused(database: Database, command: Command) -> None:
    database.session()
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")

    done = command("run", "--json", "--database-url", database.url(), code=2)

    assert "read-only" in json.loads(done.stdout)["failure"]["message"]
    assert database.count(USER_ACTIVITY.root.name) == 1
