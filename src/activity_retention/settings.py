"""Settings: what they are and what they may be (R-CFG)."""

from datetime import UTC, timedelta
from ipaddress import ip_address
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from activity_retention.conninfo import check_conninfo
from activity_retention.duration import format_duration
from activity_retention.errors import Refused
from activity_retention.forms import Duration, FilePath, Flag, Whole, Zone
from activity_retention.gateway import read_gateway, without_credentials
from activity_retention.policy import PACKAGED, Policy
from activity_retention.schedule import Schedule

# Beyond this a cutoff leaves the range of timestamptz.
_LONGEST = timedelta(days=365_000)
_ONE_DAY = timedelta(days=1)


_STRICT = ConfigDict(
    frozen=True,
    extra="forbid",
    hide_input_in_errors=True,
    validate_default=True,
    arbitrary_types_allowed=True,
)


def _setting(default: Any, description: str, allowed: str, **bounds: Any) -> Any:
    return Field(default=default, description=description, json_schema_extra={"allowed": allowed}, **bounds)


_ZERO = timedelta(0)


def _time_out(default: timedelta, description: str) -> Any:
    least, most = timedelta(milliseconds=1), timedelta(days=24)
    return _setting(default, description, "a duration from 1ms to 24d", ge=least, le=most)


class JobSettings(BaseModel):
    """One job: what it deletes, how old, when, and within which bounds."""

    model_config = _STRICT

    policy: str = _setting(
        "user-activity", "what expires: the name of a packaged policy", f"one of: {', '.join(PACKAGED)}"
    )
    allow_short_retention: Flag = _setting(False, "accept a retention period under one day", "true or false")
    retention_period: Duration = _setting(
        timedelta(days=365),
        "rows whose anchor is older than this expire; an exact duration",
        "a duration of more than 0 and at most 365000d",
        gt=_ZERO,
        le=_LONGEST,
    )
    batch_size: Whole = _setting(5000, "root rows a transaction", "a whole number from 1 to 50000", ge=1, le=50000)
    max_batches_per_run: Whole = _setting(200, "batches a run", "a whole number of at least 1", ge=1)
    max_run_duration: Duration = _setting(
        timedelta(minutes=30), "time a run may take", "a duration of more than 0", gt=_ZERO, le=_LONGEST
    )
    time_zone: Zone = _setting("Europe/Moscow", "zone of the schedule", "an IANA time zone")
    retention_schedule: str = _setting(
        "0 0 3 * * *", "cron expression, seconds first", "six cron fields, seconds first, or five"
    )
    dry_run: Flag = _setting(False, "every run only looks", "true or false")
    hold_file: FilePath | None = _setting(
        None, "while this file exists no batch starts; its first line is the reason", "a path"
    )
    batch_timeout: Duration = _time_out(timedelta(seconds=60), "time one batch may take")
    single_timeout: Duration = _time_out(timedelta(minutes=5), "time for a batch of one oversized root, once")
    lock_timeout: Duration = _time_out(timedelta(seconds=5), "time to wait for a row or table lock")
    batch_retries: Whole = _setting(
        5, "transient failures of one batch that are retried", "a whole number of at least 0", ge=0
    )
    run_retries: Whole = _setting(
        3, "times that serve repeats a failed run before the next tick", "a whole number of at least 0", ge=0
    )
    grace_period: Duration = _setting(
        timedelta(seconds=10),
        "from the first signal until the running statement is cancelled",
        "a duration of 0s or more",
        ge=_ZERO,
        le=_LONGEST,
    )

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        if name not in PACKAGED:
            raise ValueError(f"there is no such policy: write one of: {', '.join(PACKAGED)}")
        return name

    @field_validator("retention_period")
    @classmethod
    def _not_short_by_accident(cls, period: timedelta, info: ValidationInfo) -> timedelta:
        if period < _ONE_DAY and not info.data.get("allow_short_retention"):
            raise ValueError(
                f"it is {format_duration(period)}, under 1 day: months are written as days (12 months: 365d); "
                "if so short a period is meant, set allow_short_retention = true"
            )
        return period

    @field_validator("retention_schedule")
    @classmethod
    def _readable_schedule(cls, expression: str, info: ValidationInfo) -> str:
        Schedule(expression, info.data.get("time_zone", UTC))
        return expression

    @property
    def the_policy(self) -> Policy:
        return PACKAGED[self.policy]

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.retention_schedule, self.time_zone)


class Settings(BaseModel):
    """The connection, the service, the telemetry, and the job."""

    model_config = _STRICT

    database_url: SecretStr | None = _setting(None, "where the rows are", "postgresql://user@host:5432/database")
    database_url_file: FilePath | None = _setting(
        None, "a file that holds the database URL, read again at each connect", "a path"
    )
    metrics_address: str = _setting(
        "127.0.0.1",
        "where serve answers /livez, /readyz and /metrics",
        "an IP address of this machine, 0.0.0.0 for all of them, or localhost",
    )
    metrics_port: Whole = _setting(
        9464, "port of the same; 0 takes a free one", "a whole number from 0 to 65535", ge=0, le=65535
    )
    pushgateway_url: SecretStr | None = _setting(
        None,
        "Pushgateway that run hands its metrics to",
        "http://host:9091, with user:password@ if need be, percent-encoded",
    )
    textfile: FilePath | None = _setting(
        None, "file that run writes its metrics to, for node_exporter", "a path; node_exporter reads those in .prom"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "least severe log line that is written", "one of: debug, info, warning, error"
    )
    log_format: Literal["console", "json"] | None = _setting(
        None, "console or json; by default console on a terminal, else json", "one of: console, json"
    )
    job: JobSettings = Field(default_factory=JobSettings)

    @field_validator("database_url")
    @classmethod
    def _readable_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_conninfo(url.get_secret_value())
        return url

    @field_validator("metrics_address")
    @classmethod
    def _an_address(cls, address: str) -> str:
        try:
            return address if address == "localhost" else str(ip_address(address))
        except ValueError:
            raise ValueError from None

    @field_validator("pushgateway_url")
    @classmethod
    def _readable_gateway(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            read_gateway(url.get_secret_value())
        return url

    def conninfo(self) -> str:
        """The connection string as of now, empty where libpq's own variables serve; raises Refused."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        if self.database_url_file is None:
            return ""
        try:
            url = self.database_url_file.read_text(encoding="utf-8").strip()
            check_conninfo(url)
        except OSError as error:
            raise Refused(f"database_url_file = {str(self.database_url_file)!r}: {error.strerror}") from None
        except ValueError as error:
            raise Refused(f"database_url_file = {str(self.database_url_file)!r}: {error}") from None
        return url


def fields() -> dict[str, FieldInfo]:
    """Every setting by its key, in the order in which people meet them."""
    own = {key: field for key, field in Settings.model_fields.items() if key != "job"}
    return {
        "database_url": own.pop("database_url"),
        "database_url_file": own.pop("database_url_file"),
        **JobSettings.model_fields,
        **own,
    }


def values(settings: Settings) -> dict[str, Any]:
    """Every setting by its key, as text or number that reads back, secrets hidden."""
    found = {**settings.model_dump(exclude={"job"}), **settings.job.model_dump()}
    secrets = ("database_url", "pushgateway_url")
    found.update({key: found[key] and shown(key, found[key].get_secret_value()) for key in secrets})
    return {key: found[key] for key in fields()}


def shown(key: str, value: object) -> str:
    """A setting's value as a person may see it, without secrets."""
    if key == "database_url":
        return "(hidden)"
    return without_credentials(str(value)) if key == "pushgateway_url" else str(value)


def allowed(field: FieldInfo) -> str:
    """The values that a setting may have, in words."""
    extra = field.json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else ""


def json_schema() -> dict[str, object]:
    """JSON Schema of `activity-retention.toml`, for editors."""
    own, job = Settings.model_json_schema(), JobSettings.model_json_schema()
    properties = {key: {**own["properties"], **job["properties"]}[key] for key in fields()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "activity-retention.toml",
        "type": "object",
        "additionalProperties": False,
        "required": ["version"],
        "properties": {"version": {"const": 1}, **properties},
    }
