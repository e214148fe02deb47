"""The job: lock, cutoff, backlog, drain, result."""

import time
from threading import Event as Flag
from uuid import uuid4

import psycopg

from activity_retention.budget import Budget
from activity_retention.drain import Clock, Drain, Wait, pause_before
from activity_retention.errors import Failure, Refused, RunFailed, Unreachable
from activity_retention.events import Began, Finished, Retrying, RetryReason, Started, Warned, Watch
from activity_retention.fault import Fault, fault_of
from activity_retention.lock import Busy, advisory_lock, lock_name
from activity_retention.preparation import Backlog, Preparation, prepare
from activity_retention.result import Outcome, RunResult, ending
from activity_retention.sentence import sentence
from activity_retention.session import Connection, open_session
from activity_retention.settings import Settings


class ActivityRetentionJob:
    """Deletes expired roots with their children, oldest first, in batches that commit on their own.

    A scheduler calls `run()` and reads the result; nothing is raised for a run that was refused, skipped or
    failed. `watch` is told what happens meanwhile; by default that becomes log lines (R-OBS-1).
    """

    def __init__(self, settings: Settings, *, watch: Watch | None = None) -> None:
        self._settings = settings
        self._watch = watch or _log(settings)
        self._run: _Run | None = None

    def run(self, *, wait: Wait | None = None, clock: Clock = time.monotonic, hold_lock: float = 0.0) -> RunResult:
        """One run. `wait(seconds)` paces it and answers True once it shall stop, as `threading.Event.wait` does;
        `wait(0)` is asked before every batch (R-RUN-4). `clock` counts seconds. The lock is kept for at least
        `hold_lock` seconds, so that a replica which comes to the same tick a little later still finds it held.
        """
        self._run = _Run(self._settings, wait or Flag().wait, clock, self._watch, hold_lock)
        return self._run.result()

    def cancel(self) -> None:
        """Cancels the statement that is running, from a signal handler or another thread. The batch is rolled
        back whole and the run ends as cancelled."""
        if self._run is not None:
            self._run.cancel()


class _Run:
    """One run, over as many connections as it takes."""

    def __init__(self, settings: Settings, wait: Wait, clock: Clock, watch: Watch, hold_lock: float) -> None:
        self._settings = settings
        self._policy = settings.job.the_policy
        self._wait = wait
        self._clock = clock
        self._watch = watch
        self._id = uuid4()
        self._hold_lock = hold_lock
        self._began = clock()
        self._ended: float | None = None
        self._cancelled = Flag()
        self._connection: Connection | None = None
        self._server_started: str | None = None
        self._shut_down = False
        self._preparation: Preparation | None = None
        self._drain: Drain | None = None
        self._retries = 0

    def cancel(self) -> None:
        self._cancelled.set()
        if self._connection is not None:
            try:
                self._connection.cancel_safe(timeout=5)
            except psycopg.Error:
                # Nothing is lost: the statement ends at its time-out instead.
                return

    def result(self) -> RunResult:
        reason = None
        self._watch(Began(str(self._id), self._policy.name))
        try:
            stop = self._until_stopped()
            result = self._result(stop, *ending(stop, self._backlog.count))
            reason = self._drain.hold if self._drain else None
        except Busy as busy:
            result, reason = self._result("locked", "skipped", None), str(busy)
        except Refused as error:
            result = self._result("refused", "refused", None, Failure("refused", str(error)))
        except RunFailed as error:
            result = self._result("failed", "failed", True, error.failure)
        except Exception as error:
            failure = Failure("unexpected", f"{type(error).__name__}: {sentence(error)}")
            result = self._result("failed", "failed", True, failure)
        self._watch(Finished(result, reason))
        return result

    def _until_stopped(self) -> str:
        """Runs, and after a lost connection connects and locks anew, a bounded number of times (R-RETRY-2)."""
        attempt, progress = 0, 0
        while True:
            reason: RetryReason = "connection"
            try:
                return self._on_one_connection()
            except Busy as busy:
                if self._preparation is None:
                    raise
                failure, reason = Failure("lock_lost", str(busy)), "lock_lost"
            except Unreachable as error:
                failure = Failure("transient", str(error))
            except psycopg.Error as error:
                failure = Failure("transient", sentence(error), error.sqlstate)
                match fault_of(error.sqlstate):
                    case Fault.CANCELED if self._cancelled.is_set():
                        return "cancelled"
                    case Fault.CANCELED:
                        raise RunFailed(Failure("terminated", failure.message, failure.sqlstate)) from None
                    case Fault.REFUSED:
                        raise Refused(failure.message) from None
                    case Fault.POISON | Fault.LATE_CHILD:
                        raise RunFailed(Failure("unexpected", failure.message, failure.sqlstate)) from None
                    case Fault.SHUT_DOWN:
                        self._shut_down = True
                    case Fault.LOCKED:
                        reason = "locked"
                    case Fault.CONFLICT:
                        reason = "conflict"
            if self._drain and self._drain.batches > progress:
                attempt, progress = 0, self._drain.batches
            attempt += 1
            if attempt > self._settings.job.batch_retries:
                raise RunFailed(failure)
            if self._pause(failure, reason, attempt):
                return "cancelled"

    def _pause(self, failure: Failure, reason: RetryReason, attempt: int) -> bool:
        self._retries += 1
        pause = pause_before(attempt, first=0.5)
        self._watch(
            Retrying(str(self._id), reason, failure.sqlstate, failure.message, attempt, pause, batch_size=None)
        )
        return self._wait(pause)

    def _on_one_connection(self) -> str:
        job = self._settings.job
        with open_session(
            self._settings.conninfo(),
            application_name=f"activity-retention {self._id}",
            statement_timeout=job.batch_timeout,
            lock_timeout=job.lock_timeout,
        ) as session:
            self._connection = session.connection
            if self._shut_down and session.started == self._server_started:
                # 57P01 without a restart is an administrator's word, and no retry may overrule it.
                message = "an administrator terminated the connection"
                raise RunFailed(Failure("terminated", message, "57P01"))
            self._shut_down = False
            first, self._server_started = self._server_started is None, session.started
            if first:
                for warning in session.warnings:
                    self._watch(Warned(str(self._id), warning))
            with advisory_lock(session, lock_name(self._policy.name)) as key:
                drain = self._drain or self._prepared(session.connection, key)
                stop = "observed" if job.dry_run else drain.run(session.connection, key)
                self._ended = self._clock()
                self._wait(max(0.0, self._began + self._hold_lock - self._ended))
                return stop

    def _prepared(self, connection: Connection, key: int) -> Drain:
        job = self._settings.job
        preparation = prepare(connection, job, key)
        for warning in preparation.warnings:
            self._watch(Warned(str(self._id), warning))
        self._preparation = preparation
        self._drain = Drain(
            job,
            str(self._id),
            preparation.cutoff,
            Budget(job.max_batches_per_run, self._began + job.max_run_duration.total_seconds()),
            wait=self._wait,
            clock=self._clock,
            watch=self._watch,
            cancelled=self._cancelled.is_set,
        )
        self._watch(
            Started(
                str(self._id),
                self._policy.name,
                preparation.cutoff,
                job.batch_size,
                preparation.backlog.count,
                preparation.backlog.exact,
                preparation.backlog.oldest_age,
            )
        )
        return self._drain

    @property
    def _backlog(self) -> Backlog:
        return self._preparation.backlog if self._preparation else Backlog(None, False)

    def _result(
        self, stop_reason: str, outcome: Outcome, has_more: bool | None, failure: Failure | None = None
    ) -> RunResult:
        drain, preparation = self._drain, self._preparation
        return RunResult(
            run_id=self._id,
            policy=self._policy,
            outcome=outcome,
            stop_reason=stop_reason,
            has_more=has_more,
            cutoff=preparation.cutoff if preparation else None,
            deleted=dict(drain.deleted) if drain else {},
            batches_processed=drain.batches if drain else 0,
            left_locked=drain.left_locked if drain else False,
            eligible_backlog=self._backlog.count,
            backlog_exact=self._backlog.exact,
            duration_seconds=(self._clock() if self._ended is None else self._ended) - self._began,
            retries=self._retries + (drain.retries if drain else 0),
            failure=failure,
        )


def _log(settings: Settings) -> Watch:
    from activity_retention.log import RunLog, stderr_logger

    return RunLog(stderr_logger(settings.log_level, settings.log_format or "json"))
