"""What every command has: the settings as options, --json, and errors as sentences with an exit code."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from activity_retention.config import Loaded, load_settings
from activity_retention.duration import format_duration
from activity_retention.errors import FailureKind, Refused, Unreachable
from activity_retention.settings import fields

Command = Callable[..., int]

FAILED, REFUSED = 1, 2


def register(app: typer.Typer, command: Command, settings: Sequence[inspect.Parameter]) -> None:
    """Adds `command(loaded, json, …) -> exit code` with --config, --json and the options of `settings`."""
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name not in ("loaded", "json")
    ]

    @wraps(command)
    def wrapped(**arguments: Any) -> int:
        as_json = arguments.pop("json")
        given = {option.name: arguments.pop(option.name) for option in settings}
        overrides = {key: value for key, value in given.items() if value is not None}
        try:
            loaded = load_settings(overrides, arguments.pop("config"))
            _warn_of_visible_password(loaded)
            return command(loaded, as_json, **arguments)
        except Refused as error:
            return refusal(error.reasons, as_json)
        except Unreachable as error:
            return failure([str(error)], as_json, "transient")
        except Exception as error:
            return _driver_error(error, as_json)

    shared = [
        _option("config", Path | None, "--config", help="settings file (TOML)"),
        _option("json", bool, "--json", default=False, help="print one JSON document on stdout"),
        *settings,
    ]
    parameters = [*own, *shared]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(command.__name__, help=command.__doc__)(wrapped)


def refusal(reasons: Iterable[str], as_json: bool) -> int:
    """Says why nothing was done."""
    return failure(reasons, as_json, "refused")


def failure(reasons: Iterable[str], as_json: bool, kind: FailureKind) -> int:
    reasons = list(reasons)
    refused = kind == "refused"
    outcome = "refused" if refused else "failed"
    if as_json:
        print_json(
            {
                "outcome": outcome,
                "stopReason": outcome,
                "hasMore": None if refused else True,
                "failure": {"kind": kind, "sqlstate": None, "message": "\n".join(reasons), "batchIds": []},
                "reasons": reasons,
            }
        )
    for reason in reasons:
        print(f"activity-retention: {reason}", file=sys.stderr)
    return REFUSED if refused else FAILED


def print_json(document: Mapping[Any, Any]) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _driver_error(error: Exception, as_json: bool) -> int:
    import psycopg

    from activity_retention.fault import Fault, fault_of
    from activity_retention.sentence import sentence

    if not isinstance(error, psycopg.Error):
        raise error
    refused = fault_of(error.sqlstate) is Fault.REFUSED
    return failure([f"The database said: {sentence(error)}"], as_json, "refused" if refused else "transient")


def _warn_of_visible_password(loaded: Loaded) -> None:
    url = loaded.settings.database_url
    if url is None or loaded.sources["database_url"] != "--database-url":
        return
    from psycopg.conninfo import conninfo_to_dict

    if conninfo_to_dict(url.get_secret_value()).get("password"):
        print(
            "activity-retention: warning: the password on the command line is visible in ps: "
            "use ACTIVITY_RETENTION_DATABASE_URL or --database-url-file",
            file=sys.stderr,
        )


def setting_options() -> list[inspect.Parameter]:
    """An option for each setting, with its default in its help."""
    return [_setting_option(key, field) for key, field in fields().items()]


def _setting_option(key: str, field: FieldInfo) -> inspect.Parameter:
    name = f"--{key.replace('_', '-')}"
    default = format_duration(field.default) if isinstance(field.default, timedelta) else field.default
    shown = "" if default in (None, False) else f" [{default}]"
    is_flag = field.annotation is bool
    return _option(
        key,
        bool | None if is_flag else str | None,
        f"{name}/--no-{name[2:]}" if is_flag else name,
        help=f"{field.description}{shown}",
        metavar=None if is_flag else "VALUE",
    )


def _option(name: str, annotation: Any, *names: str, default: Any = None, **extra: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, typer.Option(*names, show_default=False, **extra)],
    )
