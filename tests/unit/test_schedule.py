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


def test_names_of_days_and_months_work() -> None:
    """Case E8."""
    for names, numbers in (("* MON-FRI", "* 1-5"), ("jan,FEB *", "1,2 *"), ("* Fri#2", "* 5#2")):
        named, numbered = (Schedule(f"0 0 3 * {part}", MOSCOW).upcoming(NOON, 50) for part in (names, numbers))
        assert named == numbered
    (monday,) = Schedule("0 0 3 * * MON", MOSCOW).upcoming(NOON, 1)
    assert monday == datetime(2026, 1, 5, 3, tzinfo=MOSCOW)


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
        "0 0 3 31 2 *",
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
    with pytest.raises(ValueError, match=r"such as 0 0 3 \* \* \*|none of its months has such a day"):
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


@pytest.mark.parametrize(
    ("zone", "expression"),
    [
        ("America/New_York", "0 30 2 * * *"),
        ("America/New_York", "0 30 1 * * *"),
        ("Australia/Lord_Howe", "0 15 2 * * *"),
        ("Australia/Lord_Howe", "0 45 1 * * *"),
    ],
)
def test_other_zones_change_clocks_on_other_nights_and_by_half_an_hour(zone: str, expression: str) -> None:
    """Case E5."""
    local = ZoneInfo(zone)
    fires = Schedule(expression, local).after(datetime(2026, 1, 1, tzinfo=local))
    year = list(takewhile(lambda fire: fire.year == 2026, fires))
    assert len({fire.utcoffset() for fire in year}) == 2
    assert [fire.date() for fire in year] == [date(2026, 1, 1) + timedelta(days=day) for day in range(365)]


@pytest.mark.parametrize("expression", ["0 */30 * * * *", "0-0 */30 * * * *", "*/30 * * * *"])
def test_a_schedule_of_every_half_hour_keeps_its_pace_when_clocks_change(expression: str) -> None:
    """The hour that comes twice has ticks both times."""
    for first in (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 10, 24, 23, tzinfo=UTC)):
        fires = Schedule(expression, BERLIN).upcoming(first, 10)
        assert [fire.astimezone(UTC) - first for fire in fires] == [timedelta(minutes=30 * n) for n in range(1, 11)]


def test_what_came_between_two_moments_is_bounded() -> None:
    schedule = Schedule("0 0 3 * * *", MOSCOW)
    tomorrow = schedule.upcoming(NOON, 1)[0]
    assert schedule.between(NOON, tomorrow - timedelta(seconds=1)) == []
    assert schedule.between(NOON, tomorrow) == [tomorrow]
    assert schedule.between(tomorrow, tomorrow + timedelta(days=2)) == schedule.upcoming(tomorrow, 2)
    assert len(schedule.between(NOON, NOON + timedelta(days=365 * 50))) == 10_000


def test_moscow_has_no_change_of_clocks() -> None:
    fires = Schedule("0 0 3 * * *", MOSCOW).after(datetime(2025, 12, 31, 12, tzinfo=UTC))
    year = list(takewhile(lambda fire: fire.year == 2026, fires))
    assert len(year) == 365
    assert {fire.hour for fire in year} == {3}
