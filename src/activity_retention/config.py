"""Where settings come from, and every fault of theirs in one answer (R-CFG-1).

The only reader of the environment. Order: command line, environment, file, default.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from activity_retention.errors import Refused
from activity_retention.settings import JobSettings, Settings, allowed, fields, shown

PREFIX = "ACTIVITY_RETENTION_"
DEFAULT_FILE = "activity-retention.toml"
CONFIG_VARIABLE = PREFIX + "CONFIG"

_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE")

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Loaded:
    """Settings and, for each key, where its value came from."""

    settings: Settings
    sources: Mapping[str, str]


@dataclass(frozen=True)
class _Given:
    value: object
    source: str


def load_settings(
    overrides: Mapping[str, object] | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Settings from the command line's `overrides`, the environment and the file; raises Refused with every fault.

    Without `config` the file is the one that ACTIVITY_RETENTION_CONFIG names, else `activity-retention.toml`
    in the working directory, if there is one.
    """
    environ = os.environ if environ is None else environ
    faults: list[str] = []
    layers = (
        _from_file(config, environ, faults),
        _from_environment(environ, faults),
        {
            key: _Given(given.value, f"--{key.replace('_', '-')}")
            for key, given in _known(overrides or {}, "the overrides", faults)
        },
    )
    given: dict[str, _Given] = {}
    for layer in layers:
        for one, other in (("database_url", "database_url_file"), ("database_url_file", "database_url")):
            if one in layer and other not in layer:
                given.pop(other, None)
        given.update(layer)
    if "database_url" in given and "database_url_file" in given:
        faults.append("database_url and database_url_file are both set: set one of them")

    job = {key: given[key].value for key in JobSettings.model_fields if key in given}
    own: dict[str, object] = {key: given[key].value for key in Settings.model_fields if key in given}
    job_settings, job_faults = _validated(JobSettings, job, given)
    own["job"] = job_settings or JobSettings.model_construct()
    settings, own_faults = _validated(Settings, own, given)
    faults += own_faults + job_faults
    if faults or settings is None:
        raise Refused(*faults)
    sources = {key: given[key].source if key in given else "default" for key in fields()}
    return Loaded(settings, sources)


def require_database(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Raises Refused where nothing says which database is meant."""
    environ = os.environ if environ is None else environ
    named = settings.database_url or settings.database_url_file or any(environ.get(name) for name in _LIBPQ)
    if not named:
        raise Refused(
            "No database given: set --database-url, ACTIVITY_RETENTION_DATABASE_URL, database_url_file, "
            "or libpq's PGHOST, PGDATABASE, PGSERVICE and the like."
        )


def traces_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether OpenTelemetry's own variables name a collector and nothing switches traces off.

    By its specification an empty variable is one that is not set, and the exporters are a list.
    """
    environ = os.environ if environ is None else environ
    named = any(environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", "TRACES_"))
    exporters = environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if named else "none")
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and "otlp" in exporters.replace(" ", "").split(",")


def _from_file(config: Path | None, environ: Mapping[str, str], faults: list[str]) -> dict[str, _Given]:
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    if config is None:
        if not Path(DEFAULT_FILE).is_file():
            return {}
        config = Path(DEFAULT_FILE)
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"configuration file {str(config)!r}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"configuration file {str(config)!r} is not TOML: {error}")
        return {}
    version = content.pop("version", None)
    if version != 1 or isinstance(version, bool):
        found = "is missing" if version is None else f"is {version!r}"
        faults.append(f"version {found} in {str(config)!r}: write version = 1")
    return dict(_known(content, str(config), faults))


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, _Given]:
    found = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != CONFIG_VARIABLE
    }
    return {
        key: _Given(given.value, PREFIX + key.upper())
        for key, given in _known(found, "the environment", faults, PREFIX)
    }


def _known(
    content: Mapping[str, object], where: str, faults: list[str], prefix: str = ""
) -> Iterator[tuple[str, _Given]]:
    known = list(fields())
    for key, value in content.items():
        if key in known:
            yield key, _Given(value, where)
            continue
        near = difflib.get_close_matches(key.lower(), known, n=1)
        spelled = prefix + key.upper() if prefix else key
        meant = (prefix + near[0].upper() if prefix else near[0]) if near else ""
        faults.append(f"{spelled} in {where} is not a setting" + (f": did you mean {meant}?" if meant else ""))


def _validated(
    model: type[Model], values: dict[str, object], given: Mapping[str, _Given]
) -> tuple[Model | None, list[str]]:
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        return None, [
            _sentence(str(fault["loc"][0]), given.get(str(fault["loc"][0])), fault.get("ctx", {}).get("error"))
            for fault in error.errors(include_url=False)
        ]


def _sentence(key: str, given: _Given | None, why: object) -> str:
    field = fields()[key]
    if given is None:
        return f"{key} (default): {why or allowed(field)}"
    value = repr(given.value) if shown(key, given.value) == str(given.value) else shown(key, given.value)
    reason = str(why) if why and str(why) else f"write {allowed(field)}"
    return f"{key} = {value} ({given.source}): {reason}"
