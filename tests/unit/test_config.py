"""Settings: every fault in one answer, where each value came from, and secrets that stay secret (R-CFG)."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from activity_retention.config import (
    CONFIG_VARIABLE,
    PREFIX,
    Loaded,
    load_settings,
    require_database,
)
from activity_retention.errors import Refused
from activity_retention.settings import Settings, allowed, fields, json_schema

SECRET = "hunter2"
URL = f"postgresql://job:{SECRET}@db.example:5432/activity"


@pytest.fixture(autouse=True)
def an_empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def load(
    overrides: Mapping[str, object] | None = None,
    *,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Settings from a command line, the text of a file or its path, and environment variables without prefix."""
    if isinstance(file, str):
        path = Path("given.toml")
        path.write_text(f"version = 1\n{file}")
        file = path
    return load_settings(overrides, file, {PREFIX + key: value for key, value in (environ or {}).items()})


def refusal(
    overrides: Mapping[str, object] | None = None,
    *,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """The one reason for which these settings are refused."""
    with pytest.raises(Refused) as refused:
        load(overrides, file=file, environ=environ)
    (reason,) = refused.value.reasons
    return reason


def test_the_defaults_are_those_of_the_specification() -> None:
    job = load().settings.job
    assert job.retention_period == timedelta(days=365)
    assert (job.batch_size, job.max_batches_per_run) == (5000, 200)
    assert job.max_run_duration == timedelta(minutes=30)
    assert (job.retention_schedule, job.time_zone) == ("0 0 3 * * *", ZoneInfo("Europe/Moscow"))
    assert job.the_policy.name == "user-activity"


def test_the_command_line_goes_before_the_environment_before_the_file_before_the_default() -> None:
    loaded = load(
        {"batch_size": "3"},
        file="batch_size = 1\nmax_batches_per_run = 1\nbatch_retries = 1",
        environ={"BATCH_SIZE": "2", "MAX_BATCHES_PER_RUN": "2"},
    )
    job = loaded.settings.job

    assert (job.batch_size, job.max_batches_per_run, job.batch_retries) == (3, 2, 1)
    assert loaded.sources["batch_size"] == "--batch-size"
    assert loaded.sources["max_batches_per_run"] == "ACTIVITY_RETENTION_MAX_BATCHES_PER_RUN"
    assert loaded.sources["batch_retries"] == "given.toml"
    assert loaded.sources["lock_timeout"] == "default"
    assert list(loaded.sources) == list(fields())


def test_every_fault_is_named_at_once_with_its_key_value_source_and_what_is_allowed() -> None:
    """R-CFG-1, case F1."""
    with pytest.raises(Refused) as refused:
        load(
            {"retention_period": "0d", "batch_size": "50001"},
            file='max_run_duration = "30"\nbatch_sise = 1',
            environ={"MAX_BATCHES_PER_RUN": "0", "TIME_ZONE": "Europe/Moskow", "LOG_LEVEL": "loud"},
        )
    reasons = "\n".join(refused.value.reasons)

    assert len(refused.value.reasons) == 7
    for part in (
        "retention_period = '0d' (--retention-period): write a duration of more than 0 and at most 365000d",
        "batch_size = '50001' (--batch-size): write a whole number from 1 to 50000",
        "max_run_duration = '30' (given.toml): a bare number has no unit (30 what?): write a number with a unit",
        "batch_sise in given.toml is not a setting: did you mean batch_size?",
        "max_batches_per_run = '0' (ACTIVITY_RETENTION_MAX_BATCHES_PER_RUN): write a whole number of at least 1",
        "time_zone = 'Europe/Moskow' (ACTIVITY_RETENTION_TIME_ZONE): no such time zone, did you mean Europe/Mos",
        "log_level = 'loud' (ACTIVITY_RETENTION_LOG_LEVEL): write one of: debug, info, warning, error",
    ):
        assert part in reasons


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention_period", "0s"),
        ("retention_period", "-1"),
        ("retention_period", ""),
        ("retention_period", "abc"),
        ("retention_period", "0.5"),
        ("retention_period", "365"),
        ("retention_period", "1000000000d"),
        ("retention_period", "365001d"),
        ("retention_period", "1 mon"),
        ("batch_size", "0"),
        ("batch_size", "-1"),
        ("batch_size", "50001"),
        ("batch_size", "5e3"),
        ("batch_size", "5_000"),
        ("batch_size", ""),
        ("batch_size", "٥"),
        ("max_batches_per_run", "0"),
        ("max_run_duration", "0s"),
        ("batch_timeout", "0s"),
        ("single_timeout", "25d"),
        ("lock_timeout", "0ms"),
        ("batch_retries", "-1"),
        ("grace_period", "-1s"),
        ("retention_schedule", "0 0 3 * * * *"),
        ("retention_schedule", "0 0 3 30 2 *"),
        ("time_zone", ""),
        ("time_zone", "Europe"),
        ("time_zone", '"Europe/Berlin"'),
        ("time_zone", "../../etc/passwd"),
        ("dry_run", "yes"),
        ("dry_run", "1"),
        ("allow_short_retention", ""),
        ("hold_file", " "),
        ("policy", "audit"),
        ("log_format", "xml"),
    ],
)
def test_each_wrong_value_is_refused_by_its_key_value_and_remedy(key: str, value: str) -> None:
    """Cases F1, F3, D13, E7, E11."""
    reason = refusal({key: value})
    assert reason.startswith(f"{key} = {value!r} (--{key.replace('_', '-')}): ")
    assert "write" in reason


@pytest.mark.parametrize(
    ("key", "toml"),
    [
        ("retention_period", "365"),
        ("retention_period", "12:00:00"),
        ("retention_period", "true"),
        ("batch_size", "5000.0"),
        ("batch_size", "true"),
        ("batch_size", "[1]"),
        ("dry_run", "1"),
        ("time_zone", "3"),
        ("retention_schedule", "3"),
        ("policy", "1"),
        ("hold_file", "1"),
        ("log_level", "1"),
        ("database_url", "1"),
        ("database_url_file", "{}"),
    ],
)
def test_a_value_of_another_type_is_refused_and_never_converted(key: str, toml: str) -> None:
    reason = refusal(file=f"{key} = {toml}")
    assert reason.startswith(f"{key} = ")
    assert "(given.toml): " in reason
    assert any(word in reason for word in ("write", allowed(fields()[key])))


@pytest.mark.parametrize(
    ("key", "value"),
    [("batch_size", "1"), ("batch_size", "50000"), ("retention_period", "365000d"), ("retention_period", "1d")],
)
def test_the_bounds_themselves_are_allowed(key: str, value: str) -> None:
    load({key: value})


def test_twelve_minutes_are_asked_whether_months_were_meant() -> None:
    """Case E3: 12m is twelve minutes."""
    reason = refusal({"retention_period": "12m"})
    assert "it is 12m, under 1 day: months are written as days (12 months: 365d)" in reason
    assert "allow_short_retention = true" in reason


def test_a_short_retention_is_accepted_when_it_is_said_to_be_meant() -> None:
    job = load({"retention_period": "12m", "allow_short_retention": True}).settings.job
    assert job.retention_period == timedelta(minutes=12)


def test_allowing_a_short_retention_does_not_allow_none() -> None:
    assert "more than 0" in refusal({"retention_period": "0s", "allow_short_retention": True})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("batchsize", "batch_size"), ("Batch_Size", "batch_size"), ("retention", "retention_period")],
)
def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(wrong: str, right: str) -> None:
    assert refusal(file=f"{wrong} = 1") == f"{wrong} in given.toml is not a setting: did you mean {right}?"


def test_an_unknown_variable_is_refused_with_the_nearest() -> None:
    assert refusal(environ={"BATCH_SISE": "1"}) == (
        "ACTIVITY_RETENTION_BATCH_SISE in the environment is not a setting: "
        "did you mean ACTIVITY_RETENTION_BATCH_SIZE?"
    )


def test_an_unknown_override_is_refused_with_the_nearest() -> None:
    """A program that calls load_settings is told as well, or its batch_sise would be 5000 in silence."""
    assert "did you mean batch_size?" in refusal({"batch_sise": "1"})


def test_a_key_like_no_other_gets_no_suggestion() -> None:
    assert refusal(file="zzz = 1") == "zzz in given.toml is not a setting"


def test_a_table_is_not_a_setting() -> None:
    assert "job in given.toml is not a setting" in refusal(file="[job]\nbatch_size = 1")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "version is missing"),
        ("version = 2", "version is 2"),
        ("version = true", "version is True"),
        ('version = "1"', "version is '1'"),
    ],
)
def test_a_file_of_another_version_is_refused(content: str, found: str) -> None:
    path = Path("other.toml")
    path.write_text(content)
    assert refusal(file=path) == f"{found} in 'other.toml': write version = 1"


def test_a_missing_file_is_refused_by_its_name() -> None:
    assert refusal(file=Path("nowhere.toml")) == "configuration file 'nowhere.toml': No such file or directory"


def test_a_directory_is_not_a_file() -> None:
    Path("folder").mkdir()
    assert refusal(file=Path("folder")) == "configuration file 'folder': Is a directory"


@pytest.mark.parametrize("content", [b"version = ", b"version: 1", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_is_refused(content: bytes) -> None:
    Path("bad.toml").write_bytes(content)
    assert refusal(file=Path("bad.toml")).startswith("configuration file 'bad.toml' is not TOML: ")


def test_a_broken_file_does_not_hide_the_faults_of_the_other_layers() -> None:
    with pytest.raises(Refused) as refused:
        load({"batch_size": "0"}, file=Path("nowhere.toml"), environ={"LOG_LEVEL": "loud"})
    assert len(refused.value.reasons) == 3


def test_the_file_is_the_one_given_else_the_variables_else_the_one_in_the_working_directory() -> None:
    for name, size in (("activity-retention.toml", 1), ("variable.toml", 2), ("given.toml", 3)):
        Path(name).write_text(f"version = 1\nbatch_size = {size}")
    variable = {CONFIG_VARIABLE: "variable.toml"}

    assert load_settings(config=Path("given.toml"), environ=variable).settings.job.batch_size == 3
    assert load_settings(environ=variable).settings.job.batch_size == 2
    assert load_settings(environ={}).settings.job.batch_size == 1
    assert load_settings(environ={}).sources["batch_size"] == "activity-retention.toml"


def test_variables_without_the_prefix_are_nobodys_business() -> None:
    assert load_settings(environ={"BATCH_SIZE": "1", "RETENTION_PERIOD": "1d"}).settings == Settings()


def test_a_url_and_a_file_for_it_in_one_layer_contradict_each_other() -> None:
    with pytest.raises(Refused, match="database_url and database_url_file are both set: set one of them"):
        load({"database_url": URL, "database_url_file": "url"})


@pytest.mark.parametrize(
    ("upper", "lower"), [("database_url", "database_url_file"), ("database_url_file", "database_url")]
)
def test_a_database_named_by_an_upper_layer_replaces_one_named_below(upper: str, lower: str) -> None:
    loaded = load({upper: URL}, file=f'{lower} = "{URL}"')
    assert getattr(loaded.settings, upper)
    assert getattr(loaded.settings, lower) is None
    assert loaded.sources[lower] == "default"


def test_a_url_file_is_read_again_at_each_connect() -> None:
    settings = load({"database_url_file": "url"}).settings
    Path("url").write_text(f"{URL}\n")
    assert settings.conninfo() == URL
    Path("url").write_text("postgresql://rotated@db.example/activity")
    assert settings.conninfo() == "postgresql://rotated@db.example/activity"


def test_a_url_file_that_is_gone_or_holds_no_url_is_refused_without_its_content() -> None:
    settings = load({"database_url_file": "url"}).settings
    with pytest.raises(Refused, match="database_url_file = 'url': No such file or directory"):
        settings.conninfo()
    for content in (SECRET, "", f"mysql://job:{SECRET}@db/activity"):
        Path("url").write_text(content)
        with pytest.raises(Refused, match="database_url_file = 'url': ") as refused:
            settings.conninfo()
        assert SECRET not in str(refused.value)


def test_without_any_url_libpqs_own_variables_serve() -> None:
    assert load().settings.conninfo() == ""


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://job:{SECRET}@db/activity",
        f"postgresql://job:{SECRET}@db/activity?sslmod=require",
        f"postgresql://job:{SECRET}%zz@db/activity",
        f"host=db passwort={SECRET}",
        f"postgresql://job:p@{SECRET}@db/activity",
        f"postgresql://job:p@{SECRET}:1@db:5432/activity",
        f"postgresql://job:p@s/{SECRET}@db/activity",
        f"postgresql://job:{SECRET}/1@db/activity",
        SECRET,
        "",
        "   ",
        "\ud800",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_and_never_shown(url: str) -> None:
    """A password with an unencoded @ or / would otherwise become a host, port or database, and so be printed."""
    reason = refusal({"database_url": url})
    assert reason.startswith("database_url = (hidden) (--database-url): ")
    assert "write postgresql://user@host:5432/database" in reason
    assert SECRET not in reason


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgresql:///activity",
        "postgresql://job:p%40ss%2Fword@db/activity",
        "postgresql://a.example,b.example:5433/activity?target_session_attrs=read-write",
        "postgresql://[::1]:5432/activity",
        "host=/run/postgresql dbname=activity password=p@ss",
        "service=activity",
    ],
)
def test_every_form_that_libpq_takes_is_taken(url: str) -> None:
    assert load({"database_url": url}).settings.conninfo() == url


def test_a_secret_shows_nowhere() -> None:
    loaded = load({"database_url": URL})
    for shown in (repr(loaded), str(loaded.settings), loaded.settings.model_dump_json(), str(loaded.sources)):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "faulty",
    [
        f'database_url = "{URL}"\nbatch_size = 0',
        f'databse_url = "{URL}"',
        f'database_url = ["{URL}"]',
        f'database_url = "{URL}',
        f'database_url."{SECRET}x" = 1',
    ],
)
def test_no_refusal_quotes_a_secret_of_the_file(faulty: str) -> None:
    assert SECRET not in refusal(file=faulty)


def test_a_run_needs_a_database() -> None:
    with pytest.raises(Refused, match="No database given") as refused:
        require_database(Settings(), {})
    for way in ("--database-url", "ACTIVITY_RETENTION_DATABASE_URL", "database_url_file", "PGSERVICE"):
        assert way in str(refused.value)


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE", "PGUSER", "PGPORT"])
def test_one_variable_of_libpq_names_a_database(variable: str) -> None:
    require_database(Settings(), {variable: "activity"})


def test_an_empty_variable_names_none() -> None:
    with pytest.raises(Refused):
        require_database(Settings(), {"PGHOST": ""})


def test_a_url_or_its_file_names_a_database() -> None:
    require_database(load({"database_url": URL}).settings, {})
    require_database(load({"database_url_file": "url"}).settings, {})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().settings.job.batch_size = 1


def test_the_schema_for_editors_knows_every_setting_and_no_other() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == {"version", *fields()}  # type: ignore[call-overload]
    assert schema["additionalProperties"] is False


def test_every_setting_says_what_it_is_and_what_is_allowed() -> None:
    for key, field in fields().items():
        assert field.description, key
        assert allowed(field), key
