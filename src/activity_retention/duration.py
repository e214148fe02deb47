"""Durations as people write them: `365d`, `PT30M`, `365.00:00:00`. Never calendar months or years."""

import re
from datetime import timedelta

FORMS = "a number with a unit (365d, 12h, 30m, 90s, 500ms), ISO 8601 (P365D, PT30M) or TimeSpan (365.00:00:00)"

_SHORT = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_ISO = re.compile(r"P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?")
_TIMESPAN = re.compile(r"(?:([0-9]{1,9})\.)?([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])")
_CALENDAR = re.compile(
    r"(?i:[0-9]+ ?(mon|months?|y|yrs?|years?))|P(?=[^T]*[YM])([0-9]+Y)?([0-9]+M)?([0-9]+D)?(T.*)?"
)

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def parse_duration(text: str) -> timedelta:
    """The exact duration `text` names; raises ValueError with a sentence that says what would be right."""
    text = text.strip()
    try:
        return _parsed(text)
    except OverflowError:
        raise ValueError(f"it is longer than a duration can be: write {FORMS}") from None


def _parsed(text: str) -> timedelta:
    if match := _SHORT.fullmatch(text):
        return int(match[1]) * _UNITS[match[2]]
    if (match := _ISO.fullmatch(text)) and text != "P":
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if match := _TIMESPAN.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if re.fullmatch(r"[+-]?[0-9.,]+", text):
        raise ValueError(f"a bare number has no unit ({text} what?): write {FORMS}")
    if text and _CALENDAR.fullmatch(text):
        raise ValueError("calendar months and years have no fixed length: write days, such as 365d")
    raise ValueError(f"write {FORMS}")


def format_duration(duration: timedelta) -> str:
    """The shortest documented form that reads back as the same duration, to the millisecond."""
    for unit in ("d", "h", "m", "s"):
        if duration and duration % _UNITS[unit] == timedelta(0):
            return f"{duration // _UNITS[unit]}{unit}"
    return f"{duration // _UNITS['ms']}ms" if duration else "0s"
