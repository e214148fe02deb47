"""Six cron fields, seconds first, in a named zone (cases E5, E7, E8)."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from activity_retention.schedule import Schedule

MOSCOW = ZoneInfo("Europe/Moscow")
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUNDAYS = [datetime(2026, 1, day, 3, tzinfo=MOSCOW) for day in (4, 11, 18)]


def test_six_fields_put_seconds_first() -> None:
    """Case E7: a daily job, not sixty runs in a row."""
    assert Schedule("0 0 3 * * *", MOSCOW).upcoming(NOON, 3) == [
        datetime(2026, 1, day, 3, tzinfo=MOSCOW) for day in (2, 3, 4)
    ]
    assert Schedule("15 30 3 * * *", MOSCOW).upcoming(NOON, 1) == [datetime(2026, 1, 2, 3, 30, 15, tzinfo=MOSCOW)]


def test_five_fields_mean_second_zero() -> None:
    assert Schedule("0 3 * * *", MOSCOW).upcoming(NOON, 9) == Schedule("0 0 3 * * *", MOSCOW).upcoming(NOON, 9)


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun"])
def test_sunday_is_0_or_7_or_its_name(sunday: str) -> None:
    """Case E8."""
    assert Schedule(f"0 0 3 * * {sunday}", MOSCOW).upcoming(NOON, 3) == SUNDAYS


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "@daily",
        "3",
        "0 0 3 *",
        "0 0 3 * * * *",
        "0 0 3 * * * 2026",
    ],
)
def test_any_other_number_of_fields_is_refused(expression: str) -> None:
    count = len(expression.split())
    with pytest.raises(ValueError, match=f"it has {count} fields: write six, seconds first, such as 0 0 3"):
        Schedule(expression, MOSCOW)


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 3 30 2 *",
        "0 0 3 31 4 *",
        "0 0 3 * * 8",
        "60 0 3 * * *",
        "0 60 3 * * *",
        "0 0 24 * * *",
        "0 0 3 0 * *",
        "0 0 3 * 13 *",
        "a b c d e f",
        "0 0 -3 * * *",
        "0 0 3-1 * * *",
        "0 0 */0 * * *",
    ],
)
def test_a_date_that_never_comes_is_refused_when_read(expression: str) -> None:
    with pytest.raises(ValueError, match=r"such as 0 0 3 \* \* \*|no date ever matches"):
        Schedule(expression, MOSCOW)


def test_a_leap_day_is_a_date_that_comes() -> None:
    assert Schedule("0 0 3 29 2 *", MOSCOW).upcoming(NOON, 1) == [datetime(2028, 2, 29, 3, tzinfo=MOSCOW)]


def test_a_fire_time_is_later_than_the_moment_asked_about() -> None:
    at_three = datetime(2026, 1, 2, 3, tzinfo=MOSCOW)
    schedule = Schedule("0 0 3 * * *", MOSCOW)
    assert schedule.upcoming(at_three, 1) == [at_three + timedelta(days=1)]
    assert schedule.upcoming(at_three - timedelta(microseconds=1), 1) == [at_three]


def test_the_moment_may_be_given_in_any_zone() -> None:
    schedule = Schedule("0 0 3 * * *", MOSCOW)
    tokyo = NOON.astimezone(ZoneInfo("Asia/Tokyo"))
    assert schedule.upcoming(tokyo, 5) == schedule.upcoming(NOON, 5)


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *", "00 30 2 * * *", "15 30 2 * * *"])
@pytest.mark.parametrize(
    ("first", "changeover"),
    [
        pytest.param(date(2026, 3, 27), date(2026, 3, 29), id="spring"),
        pytest.param(date(2026, 10, 23), date(2026, 10, 25), id="autumn"),
    ],
)
def test_a_change_of_clocks_neither_drops_nor_doubles_a_night(
    expression: str, first: date, changeover: date
) -> None:
    """Case E5: 02:30 does not exist on the spring night and comes twice on the autumn one."""
    fires = Schedule(expression, BERLIN).upcoming(datetime(first.year, first.month, first.day, tzinfo=UTC), 5)
    assert [fire.date() for fire in fires] == [first + timedelta(days=day) for day in range(5)]
    assert changeover in {fire.date() for fire in fires}


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *", "00 30 2 * * *", "15 30 2 * * *"])
@pytest.mark.parametrize("zone", [UTC, BERLIN], ids=str)
@pytest.mark.parametrize("minutes", [0, 10, 40, 170])
def test_whoever_asks_anew_after_a_run_is_not_told_the_same_night_again(
    expression: str, zone: tzinfo, minutes: int
) -> None:
    """Case E5: a daemon asks after each run, here from 02:31 before the change of clocks."""
    after_the_run = datetime(2026, 10, 25, 0, 31, tzinfo=UTC) + timedelta(minutes=minutes)
    (fire,) = Schedule(expression, BERLIN).upcoming(after_the_run.astimezone(zone), 1)
    assert fire.date() == date(2026, 10, 26)


def test_moscow_has_no_change_of_clocks() -> None:
    fires = Schedule("0 0 3 * * *", MOSCOW).after(datetime(2025, 12, 31, 12, tzinfo=UTC))
    year = list(takewhile(lambda fire: fire.year == 2026, fires))
    assert len(year) == 365
    assert {fire.hour for fire in year} == {3}
