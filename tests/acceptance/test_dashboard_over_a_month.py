"""One run a night as the dashboard shows it: promtool evaluates its queries over made-up series (R-OBS-5)."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests import grafana

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")

MINUTE, HOUR, DAY = 60, 3600, 86_400
MONTH, SIX_HOURS = 30 * DAY, 6 * HOUR
# promtool takes 10,000 samples a query, which are some days of the one and some hours of the other.
SELDOM, OFTEN = 5 * MINUTE, MINUTE
NIGHTS = range(11)
LAST_TICK = NIGHTS[-1] * DAY
NOW = LAST_TICK + 30 * MINUTE
DURATION, ROWS = 700, 5000
JOB, TABLE = '{policy="user-activity"}', '{table="user_activity.sessions"}'
COMPLETED, SKIPPED = '{outcome="completed"}', '{outcome="skipped"}'


@dataclass(frozen=True)
class Process:
    """A replica between two starts: `a` works in even nights, the other one is skipped, and the other way round."""

    instance: str
    started: int
    ended: int = NOW + 1

    def ran(self, time: int, *, working: bool) -> list[int]:
        """Its nights by then."""
        return [
            night
            for night in NIGHTS
            if self.started <= night * DAY + DURATION <= time
            and ((self.instance == "a") == (night % 2 == 0)) == working
        ]

    def series(self, time: int) -> dict[str, float]:
        worked, skipped = (self.ran(time, working=working) for working in (True, False))
        return {
            'runs_total{outcome="completed",': len(worked),
            'runs_total{outcome="skipped",': len(skipped),
            "lock_contention_total{": len(skipped),
            'deleted_rows_total{table="user_activity.sessions",': ROWS * len(worked),
            "run_duration_seconds_count{": len(worked),
            "run_duration_seconds_sum{": DURATION * len(worked),
            "last_success_timestamp_seconds{": worked[-1] * DAY + DURATION if worked else 0,
        }


# One replica is started again twice, the last time after it has done its work; the other one is replaced.
PROCESSES = (
    Process("a", 0, 3 * DAY + 12 * HOUR),
    Process("a", 3 * DAY + 12 * HOUR, NOW - 5 * MINUTE),
    Process("a", NOW - 5 * MINUTE),
    Process("b", 0, 6 * DAY + 12 * HOUR),
    Process("c", 6 * DAY + 12 * HOUR),
)


@dataclass(frozen=True)
class Look:
    """At a panel: at the bar of this time or just then, in whole units."""

    panel: str
    time: int
    unit: int
    expected: Mapping[str, int]


@pytest.mark.parametrize(
    ("panel", "unit", "expected"),
    [
        ("Outcome of the last 30 nights", 1, {COMPLETED: 1, SKIPPED: 1}),
        ("Lock contention", 1, {JOB: 1}),
        ("Rows deleted", 1000, {TABLE: ROWS}),
        ("Duration of a run against its limit", 1, {JOB: DURATION}),
    ],
)
def test_over_a_month_each_night_is_one_bar(
    panel: str, unit: int, expected: dict[str, int], tmp_path: Path
) -> None:
    """Last night's as well, though its day is not over; whoever worked, and whoever was started again since."""
    evaluate(tmp_path, MONTH, SELDOM, [Look(panel, night * DAY, unit, expected) for night in NIGHTS])


def test_over_some_hours_it_is_one_bar_of_ten_minutes(tmp_path: Path) -> None:
    bars = {-600: 0, 0: 0, 600: ROWS, 1200: 0}

    evaluate(
        tmp_path,
        SIX_HOURS,
        OFTEN,
        [Look("Rows deleted", LAST_TICK + start, 1000, {TABLE: rows}) for start, rows in bars.items()],
    )


def test_the_last_success_outlives_its_process(tmp_path: Path) -> None:
    age = NOW - LAST_TICK - DURATION

    evaluate(tmp_path, MONTH, SELDOM, [Look("Last success", NOW, 1, {JOB: age}), Look("Overdue", NOW, 1, {JOB: 0})])


def evaluate(folder: Path, span: int, scrape: int, looks: Sequence[Look]) -> None:
    """Has promtool look at what was scraped every `scrape` seconds, in a picture of so long a `span`."""
    queries = {query.panel: query for query in reversed([*grafana.queries()])}
    # promtool loads no more than up to the latest look.
    until_now = {"expr": "time()", "eval_time": f"{NOW}s", "exp_samples": [{"labels": "{}", "value": NOW}]}
    tests = [
        {
            # increase() extrapolates by up to a scrape.
            "expr": f"round({queries[look.panel].filled_in(span, scrape)}, {look.unit})",
            "eval_time": f"{look.time}s",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in look.expected.items()],
        }
        for look in looks
    ]
    series = [{"series": name, "values": values} for name, values in made_up(scrape).items()]
    group = {"interval": f"{scrape}s", "input_series": series, "promql_expr_test": [*tests, until_now]}
    file = folder / "nights.test.json"
    file.write_text(json.dumps({"tests": [group]}), encoding="utf-8")

    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@cache
def made_up(scrape: int) -> dict[str, str]:
    """The values of each series, `_` while its process is not there."""
    times = range(0, NOW + 1, scrape)
    values: dict[str, dict[int, float]] = {}
    for process in PROCESSES:
        for time in times:
            if process.started <= time < process.ended:
                for name, value in process.series(time).items():
                    labels = f'policy="user-activity",instance="{process.instance}"}}'
                    values.setdefault(f"activity_retention_{name}{labels}", {})[time] = value
    return {name: " ".join(str(known.get(time, "_")) for time in times) for name, known in values.items()}
