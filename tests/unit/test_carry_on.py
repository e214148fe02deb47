"""Series that go on from one process to the next (case F14)."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from activity_retention.carry_on import carry_on, read_former

P = "activity_retention_"
US = 'policy="user-activity"'
BOUNDS = (1.0, 5.0)


class Process:
    """What one process counts: the kinds of series that a run has."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.registry = CollectorRegistry()
        self.runs = Counter(P + "runs", "Runs", ["policy", "outcome"], registry=self.registry)
        self.took = Histogram(
            P + "run_duration_seconds", "Time", ["policy"], buckets=bounds, registry=self.registry
        )
        self.backlog = Gauge(P + "eligible_backlog", "Backlog", ["policy"], registry=self.registry)
        self.success = Gauge(P + "last_success_timestamp_seconds", "Then", ["policy"], registry=self.registry)
        for outcome in ("completed", "failed"):
            self.runs.labels("user-activity", outcome)
        self.success.labels("user-activity")

    def ends(self, outcome: str, seconds: float, backlog: int | None = None, at: float = 0.0) -> "Process":
        self.runs.labels("user-activity", outcome).inc()
        self.took.labels("user-activity").observe(seconds)
        if backlog is not None:
            self.backlog.labels("user-activity").set(backlog)
        if outcome == "completed":
            self.success.labels("user-activity").set(at)
        return self

    def exposed(self, former: str = "", **group: str) -> str:
        """What it exposes where `former` had been exposed before."""
        counted, series = self.registry, read_former(former, group)

        class Merged:
            def collect(self) -> Iterator[Metric]:
                return carry_on(counted.collect(), series)

        merged = CollectorRegistry()
        merged.register(Merged())
        return generate_latest(merged).decode()


def value(exposition: str, name: str, **labels: str) -> float | None:
    wanted = {"policy": "user-activity", **labels}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if (sample.name, sample.labels) == (P + name, wanted):
                return sample.value
    return None


def test_the_first_process_exposes_what_it_has_counted() -> None:
    process = Process().ends("completed", 3, backlog=7, at=1000)
    assert process.exposed() == generate_latest(process.registry).decode()


def test_counters_and_histograms_go_on_from_process_to_process() -> None:
    exposed = ""
    for outcome, seconds in (("completed", 0.5), ("failed", 3), ("completed", 30)):
        exposed = Process().ends(outcome, seconds).exposed(exposed)

    assert value(exposed, "runs_total", outcome="completed") == 2
    assert value(exposed, "runs_total", outcome="failed") == 1
    assert [value(exposed, "run_duration_seconds_bucket", le=le) for le in ("1.0", "5.0", "+Inf")] == [1, 2, 3]
    assert value(exposed, "run_duration_seconds_count") == 3
    assert value(exposed, "run_duration_seconds_sum") == 33.5


def test_a_histogram_goes_on_however_its_bounds_are_written() -> None:
    """A Pushgateway hands out le="1" where it was given le="1.0"."""
    rewritten = Process().ends("completed", 3).exposed().replace('="1.0"', '="1"').replace('="5.0"', '="5"')
    exposed = Process().ends("completed", 0.5).exposed(rewritten)
    assert [value(exposed, "run_duration_seconds_bucket", le=le) for le in ("1.0", "5.0", "+Inf")] == [1, 2, 2]


def test_a_series_that_there_was_not_before_starts_from_its_own_count() -> None:
    before = f'# TYPE {P}runs_total counter\n{P}runs_total{{{US},outcome="completed"}} 5.0\n'
    exposed = Process().ends("failed", 1).exposed(before)
    assert value(exposed, "runs_total", outcome="completed") == 5
    assert value(exposed, "runs_total", outcome="failed") == 1


def test_a_histogram_whose_buckets_have_changed_starts_anew() -> None:
    """Its old counts would land in the wrong places."""
    before = Process().ends("completed", 3).exposed()
    exposed = Process(bounds=(2.0, 10.0)).ends("completed", 3).exposed(before)

    assert [value(exposed, "run_duration_seconds_bucket", le=le) for le in ("2.0", "10.0", "+Inf")] == [0, 1, 1]
    assert value(exposed, "run_duration_seconds_count") == 1
    assert value(exposed, "run_duration_seconds_bucket", le="5.0") is None


def test_a_gauge_keeps_its_last_figure_until_somebody_sets_it() -> None:
    first = Process().ends("completed", 1, backlog=7).exposed()
    second = Process().ends("failed", 1).exposed(first)
    third = Process().ends("completed", 1, backlog=0).exposed(second)
    assert [value(each, "eligible_backlog") for each in (first, second, third)] == [7, 7, 0]


def test_the_last_success_outlives_processes_without_one() -> None:
    """Case F14."""
    first = Process().ends("completed", 1, at=1000).exposed()
    second = Process().ends("failed", 1).exposed(first)
    third = Process().ends("completed", 1, at=2000).exposed(second)
    assert [value(each, "last_success_timestamp_seconds") for each in (first, second, third)] == [1000, 1000, 2000]


def test_a_success_of_a_clock_that_was_years_ahead_does_not_look_healthy_for_years() -> None:
    """Case F14."""
    ahead = Process().ends("completed", 1, at=9_000_000_000).exposed()
    assert value(Process().ends("completed", 1, at=1000).exposed(ahead), "last_success_timestamp_seconds") == 1000


def test_only_the_series_of_our_group_go_on_and_without_what_the_gateway_added() -> None:
    group = {"job": "activity-retention", "policy": "user-activity"}
    gateway = "\n".join(
        f'{P}runs_total{{instance="",job="{job}",policy="{policy}",outcome="completed"}} {count}'
        for job, policy, count in (
            ("activity-retention", "user-activity", 1),
            ("activity-retention", "another", 10),
            ("backup", "user-activity", 100),
        )
    )
    exposed = Process().ends("completed", 1).exposed(gateway, **group)
    assert value(exposed, "runs_total", outcome="completed") == 2
    assert "another" not in exposed
    assert "instance" not in exposed


def test_lines_of_others_are_not_even_read() -> None:
    before = f'this is {{ not =" an exposition\npush_time_seconds 1\n{P}runs_total{{{US},outcome="failed"}} 2\n'
    assert value(Process().exposed(before), "runs_total", outcome="failed") == 2


@pytest.mark.parametrize(
    "garbage",
    [
        f"{P}runs_total",
        f"{P}runs_total{{{US}",
        f"{P}runs_total{{{US}}} many",
        f"# TYPE {P}runs_total",
        f"<html>{P}runs_total</html>",
    ],
)
def test_a_text_that_is_no_exposition_is_a_value_error(garbage: str) -> None:
    # The parser's own sentences differ, or are empty.
    with pytest.raises(ValueError):  # noqa: PT011
        read_former(garbage, {})
