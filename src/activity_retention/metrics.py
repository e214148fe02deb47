"""Prometheus series of the runs of one policy (R-OBS-2)."""

import time
from collections.abc import Callable
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from activity_retention import __version__
from activity_retention.events import BatchCommitted, Event, Finished, Retrying, RetryReason, Started
from activity_retention.hold import hold_reason
from activity_retention.result import Outcome, RunResult
from activity_retention.settings import JobSettings

MissedReason = Literal["running", "late"]

_PREFIX = "activity_retention_"
_BATCH_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_RUN_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 10_800)
# Around the limit, where it matters how near a run came to it.
_RUN_SHARES = (0.5, 0.75, 0.9, 1, 1.25, 2)


class RunMetrics:
    """Turns the events of runs into series of `registry`.

    Counters exist from the start, at 0, and move after the commit that they count. What a run alone can know about
    the data (`eligible_backlog`, `oldest_eligible_age_seconds`, `has_more`) is absent until one has looked, and
    leaves again when another replica does the work: the last figure of this one would be an old one.
    """

    def __init__(self, job: JobSettings, now: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        self._job = job
        self._now = now
        policy = job.the_policy
        most = job.max_run_duration.total_seconds()

        self._run_duration = self._histogram(
            "run_duration_seconds", "Time that a run took, from start to end", run_buckets(most)
        )
        self._batch_duration = self._histogram(
            "batch_duration_seconds", "Time that a batch took, commit included", _BATCH_SECONDS
        )
        self._deleted = {
            table: self._counter(f"deleted_{table.name}", f"Rows deleted from {table}").labels(policy.name)
            for table in policy.counters
        }
        rows = self._counter("deleted_rows", "Rows deleted, by table", "table")
        self._rows = {table: rows.labels(policy.name, str(table)) for table in policy.tables}
        self._batches = self._counter("batches_processed", "Batches committed").labels(policy.name)
        self._contention = self._counter(
            "lock_contention", "Runs that were skipped because the advisory lock was held elsewhere"
        ).labels(policy.name)
        runs = self._counter("runs", "Runs that have ended, by outcome", "outcome")
        self._runs = {outcome: runs.labels(policy.name, outcome) for outcome in get_args(Outcome)}
        retries = self._counter(
            "batch_retries", "Attempts at a batch, or at a connection for it, that were made again", "reason"
        )
        self._retries = {reason: retries.labels(policy.name, reason) for reason in get_args(RetryReason)}
        missed = self._counter("ticks_missed", "Times of the schedule at which no run was started", "reason")
        self._missed = {reason: missed.labels(policy.name, reason) for reason in get_args(MissedReason)}

        self._backlog = self._gauge("eligible_backlog", "Expired roots when the last run started")
        self._oldest = self._gauge(
            "oldest_eligible_age_seconds", "Age of the oldest expired root when the last run started, 0 if none"
        )
        self._has_more = self._gauge("has_more", "1 if the last run left expired roots for the next one")
        self._last_success = self._gauge(
            "last_success_timestamp_seconds", "When the last completed run ended, as Unix time; 0 before the first"
        ).labels(policy.name)
        self._gauge("held", "1 while the hold file exists").labels(policy.name).set_function(
            lambda: hold_reason(job.hold_file) is not None
        )
        self._gauge("max_run_duration_seconds", "Setting max_run_duration").labels(policy.name).set(most)
        self._gauge("retention_period_seconds", "Setting retention_period").labels(policy.name).set(
            job.retention_period.total_seconds()
        )
        self._gauge("build_info", "Version of activity-retention", "version").labels(policy.name, __version__).set(
            1
        )

    def __call__(self, event: Event) -> None:
        match event:
            case Started(backlog=count, oldest_age=age):
                self._looked(count, age)
            case BatchCommitted():
                for table, n in event.deleted.items():
                    self._deleted[table].inc(n)
                    self._rows[table].inc(n)
                self._batches.inc()
                self._batch_duration.labels(self._job.policy).observe(event.seconds)
            case Retrying():
                self._retries[event.reason].inc()
            case Finished(result):
                self._finished(result)

    def missed(self, reason: MissedReason, count: int) -> None:
        """Counts times of the schedule at which no run was started."""
        self._missed[reason].inc(count)

    def _looked(self, backlog: int | None, oldest_age: float | None) -> None:
        for gauge, value in ((self._backlog, backlog), (self._oldest, 0 if backlog == 0 else oldest_age)):
            if value is None:
                gauge.clear()
            else:
                gauge.labels(self._job.policy).set(value)

    def _finished(self, result: RunResult) -> None:
        self._runs[result.outcome].inc()
        match result.outcome:
            case "skipped":
                self._contention.inc()
                for gauge in (self._backlog, self._oldest, self._has_more):
                    gauge.clear()
                return
            case "refused":
                return
            case "completed":
                self._last_success.set(self._now())
        self._run_duration.labels(self._job.policy).observe(result.duration_seconds)
        if result.has_more is not None and result.cutoff is not None:
            self._has_more.labels(self._job.policy).set(result.has_more)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, help_text, ["policy", *labels], registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, help_text, ["policy", *labels], registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(_PREFIX + name, help_text, ["policy"], buckets=buckets, registry=self.registry)
        histogram.labels(self._job.policy)
        return histogram


def run_buckets(most: float) -> tuple[float, ...]:
    """Upper bounds in seconds, up to twice the `most` that a run may take."""
    shares = {round(share * most, 3) for share in _RUN_SHARES}
    return tuple(sorted(shares | {bound for bound in _RUN_SECONDS if bound < most / 2}))
