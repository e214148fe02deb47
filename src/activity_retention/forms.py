"""The forms in which people write the value of a setting."""

import difflib
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from activity_retention.duration import FORMS, format_duration, parse_duration


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, timedelta):
        return value
    raise ValueError(f"it is not a duration: write {FORMS}")


def _whole(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    raise ValueError


def _flag(value: object) -> object:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, bool):
        return value
    raise ValueError


def _path(value: object) -> object:
    if isinstance(value, str | Path) and str(value).strip():
        return Path(value).expanduser()
    raise ValueError


def _zone(value: object) -> object:
    if isinstance(value, ZoneInfo):
        return value
    try:
        return ZoneInfo(value)  # type: ignore[arg-type]
    except (KeyError, ValueError, OSError, TypeError):
        known = available_timezones()
        if not known:
            raise ValueError(
                f"this machine has no time zone database, so {value} can't be looked up: install the package tzdata"
            ) from None
        near = difflib.get_close_matches(str(value), known, n=1)
        raise ValueError(
            f"no such time zone{f', did you mean {near[0]}?' if near else ''}: write an IANA name such as "
            "Europe/Moscow"
        ) from None


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration),
    WithJsonSchema({"type": "string", "examples": ["365d", "PT30M", "365.00:00:00"]}),
]
Whole = Annotated[int, BeforeValidator(_whole)]
Flag = Annotated[bool, BeforeValidator(_flag)]
FilePath = Annotated[Path, BeforeValidator(_path), PlainSerializer(str)]
Zone = Annotated[
    ZoneInfo,
    BeforeValidator(_zone),
    PlainSerializer(lambda zone: zone.key),
    WithJsonSchema({"type": "string"}),
]
