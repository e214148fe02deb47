"""Each time of a schedule comes once, whatever the clock does (cases E5 and E12)."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from activity_retention.schedule import Schedule
from activity_retention.ticks import Ticks

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A time of day that stands still until it is moved."""

    def __init__(self, now: datetime = MIDNIGHT) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


def nightly(clock: Clock, expression: str = "0 0 3 * * *") -> Ticks:
    return Ticks(Schedule(expression, ZoneInfo("UTC")), clock)


def three(day: int) -> datetime:
    return datetime(2026, 1, day, 3, tzinfo=UTC)


def test_a_time_comes_once_and_not_before_its_second() -> None:
    clock = Clock()
    ticks = nightly(clock)

    clock.move(hours=2, minutes=59, seconds=59)
    assert (ticks.passed(), ticks.left(), ticks.following) == ([], 1, three(1))
    clock.move(seconds=1)
    assert (ticks.passed(), ticks.passed()) == ([three(1)], [])
    assert (ticks.left(), ticks.following) == (24 * 3600, three(2))


def test_a_start_on_the_very_second_of_a_tick_waits_for_the_next_one() -> None:
    ticks = nightly(Clock(three(1)))
    assert (ticks.passed(), ticks.following) == ([], three(2))


def test_a_tick_that_has_come_and_was_not_asked_for_has_less_than_nothing_left() -> None:
    clock = Clock()
    ticks = nightly(clock)
    clock.move(hours=4)
    assert ticks.left() == -3600


def test_a_machine_that_slept_is_told_all_it_missed_the_latest_last() -> None:
    """Case E12: the last one is still worth a run, the others are counted."""
    clock = Clock()
    ticks = nightly(clock)

    clock.move(days=3, hours=5)

    assert ticks.passed() == [three(1), three(2), three(3), three(4)]
    assert ticks.passed() == []
    assert ticks.following == three(5)


def test_whoever_asks_often_is_told_each_time_once() -> None:
    """Case E12: while a run goes on the ticks are asked for, and so are not made up for."""
    clock = Clock()
    ticks = nightly(clock, "*/10 * * * * *")

    handed = []
    for _ in range(100):
        clock.move(seconds=0.7)
        handed += ticks.passed()

    assert handed == [MIDNIGHT + timedelta(seconds=10 * n) for n in range(1, 8)]


@pytest.mark.parametrize("hours", [0.5, 1, 3, 23.9])
def test_a_clock_that_is_set_back_a_little_hands_out_nothing_twice(hours: float) -> None:
    clock = Clock()
    ticks = nightly(clock, "0 */15 * * * *")
    clock.move(hours=4)
    first = ticks.passed()

    clock.move(hours=-hours)
    again = []
    for _ in range(6 * 26):
        clock.move(minutes=10)
        again += ticks.passed()

    assert first[-1] == MIDNIGHT + timedelta(hours=4)
    assert again[0] == MIDNIGHT + timedelta(hours=4, minutes=15)
    assert len(again) == len(set(again))


def test_a_clock_that_had_been_years_ahead_comes_back_to_life() -> None:
    clock = Clock()
    ticks = nightly(clock)
    clock.move(days=3650)
    ticks.passed()

    clock.now = MIDNIGHT
    assert (ticks.passed(), ticks.following) == ([], three(1))
    clock.now = three(1)
    assert ticks.passed() == [three(1)]


@pytest.mark.parametrize("expression", ["0 0 3 * * *", "* * * * * *"])
def test_a_jump_of_decades_ends_soon_and_the_next_tick_is_one_to_come(expression: str) -> None:
    clock = Clock()
    ticks = nightly(clock, expression)

    clock.move(days=40 * 365)

    assert len(ticks.passed()) == 10_000
    assert ticks.passed() == []
    assert ticks.left() > 0


@pytest.mark.parametrize("step", [timedelta(minutes=25), timedelta(hours=1)], ids=str)
@pytest.mark.parametrize(
    ("zone", "expression"),
    [
        ("Europe/Berlin", "0 30 2 * * *"),
        ("Europe/Berlin", "0 0 3 * * *"),
        ("America/New_York", "0 30 2 * * *"),
        ("America/New_York", "30 15 1 * * *"),
        ("Australia/Lord_Howe", "0 45 1 * * *"),
        ("Australia/Lord_Howe", "0 15 2 * * *"),
    ],
)
def test_a_nightly_schedule_ticks_once_a_date_through_both_changes_of_clocks(
    zone: str, expression: str, step: timedelta
) -> None:
    """Case E5: the hours of the changes are those that do not exist, or come twice, on one night."""
    local = ZoneInfo(zone)
    clock = Clock(datetime(2026, 1, 1, tzinfo=local).astimezone(UTC))
    ticks = Ticks(Schedule(expression, local), clock)
    nights: Counter[date] = Counter()

    while clock.now < datetime(2027, 1, 1, tzinfo=local):
        clock.now += step
        nights.update(tick.astimezone(local).date() for tick in ticks.passed())

    assert len({(clock.now - timedelta(days=day)).astimezone(local).utcoffset() for day in range(365)}) == 2
    assert nights == Counter(date(2026, 1, 1) + timedelta(days=day) for day in range(365))
