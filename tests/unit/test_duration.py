"""Durations: only the documented forms are read, and what is shown reads back as the same (case F3)."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_retention.duration import FORMS, format_duration, parse_duration

LONGEST_SETTING = timedelta(days=365_000)

milliseconds = st.integers(0, LONGEST_SETTING // timedelta(milliseconds=1)).map(lambda n: timedelta(milliseconds=n))
whole_units = st.builds(
    lambda count, unit: count * unit,
    st.integers(0, 365_000),
    st.sampled_from([timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]),
)


@given(milliseconds | whole_units)
def test_what_is_shown_reads_back_as_the_same_duration(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("365d", timedelta(days=365)),
        ("12h", timedelta(hours=12)),
        ("30m", timedelta(minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("0s", timedelta(0)),
        ("P365D", timedelta(days=365)),
        ("PT30M", timedelta(minutes=30)),
        ("PT12H", timedelta(hours=12)),
        ("PT90S", timedelta(seconds=90)),
        ("P1DT2H3M4S", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("365.00:00:00", timedelta(days=365)),
        ("00:30:00", timedelta(minutes=30)),
        ("1.23:59:59", timedelta(days=1, hours=23, minutes=59, seconds=59)),
        (" 365d ", timedelta(days=365)),
    ],
)
def test_every_documented_form_is_read(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=365), "365d"),
        (timedelta(hours=36), "36h"),
        (timedelta(minutes=30), "30m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(0), "0s"),
    ],
)
def test_the_largest_whole_unit_is_shown(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@pytest.mark.parametrize("text", ["365", "30", "0.5", "-1", "+7", "1,5", "1.000"])
def test_a_bare_number_is_asked_for_its_unit(text: str) -> None:
    """Case F3: thirty what?"""
    with pytest.raises(ValueError, match="no unit") as refusal:
        parse_duration(text)
    assert f"{text} what?" in str(refusal.value)
    assert FORMS in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["1 mon", "12 months", "12mon", "1 year", "2y", "3yrs", "P1M", "P1Y", "P1Y2M3DT4H"]
)
def test_calendar_months_and_years_are_refused_for_their_length(text: str) -> None:
    """Case E3: they have none that is fixed."""
    with pytest.raises(ValueError, match="no fixed length: write days, such as 365d"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "d",
        "-1d",
        "1e9",
        "1.5d",
        "365 d",
        "365D",
        "365d12h",
        "365 days",
        "one day",
        "P",
        "PT",
        "P1W",
        "P1DT",
        "p1d",
        "24:00:00",
        "1:00:00",
        "00:60:00",
        "00:30",
        "1d\n2d",
        "٣٦٥d",
        "³d",
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="365d") as refusal:
        parse_duration(text)
    assert FORMS in str(refusal.value)


@pytest.mark.parametrize("text", ["1000000000d", "999999999999999h", "P999999999DT24H"])
def test_a_duration_beyond_all_bounds_is_refused_and_never_overflows(text: str) -> None:
    """Case F1."""
    with pytest.raises(ValueError, match="longer than a duration can be"):
        parse_duration(text)


@given(st.text() | st.from_regex(r"[P+-]?[0-9]{1,20}[.:a-zA-Z]{0,3}"))
def test_every_text_is_a_duration_or_gets_a_sentence(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta(0)
    except ValueError as refusal:
        assert re.search("365d|longer than a duration can be", str(refusal))  # noqa: PT017
