"""One run's loop of batches: floor, batch size, retries."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from activity_retention.batch import (
    BatchResult,
    ListedFailure,
    LockNotHeld,
    NotDeleted,
    Selection,
    delete_batch,
    expired_left,
)
from activity_retention.batch_size import BatchSize
from activity_retention.budget import Budget, StopReason
from activity_retention.errors import Failure, FailureKind, Refused, RunFailed
from activity_retention.events import BatchCommitted, Retrying, RetryReason, Watch
from activity_retention.fault import Fault, fault_of
from activity_retention.hold import hold_reason
from activity_retention.policy import Table
from activity_retention.sentence import sentence
from activity_retention.session import Connection
from activity_retention.settings import JobSettings

Wait = Callable[[float], bool]
Clock = Callable[[], float]


# The server counts whole milliseconds.
_TIMER_GRAIN = 0.002


def pause_before(attempt: int, first: float = 0.1, most: float = 30.0) -> float:
    """Seconds to wait before attempt number `attempt` (from 1): doubled each time, with jitter."""
    return min(most, first * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)  # noqa: S311


class Drain:
    """Takes batches until something ends the run. What it has counted outlives a lost connection."""

    def __init__(
        self,
        job: JobSettings,
        run_id: str,
        cutoff: str,
        budget: Budget,
        *,
        wait: Wait,
        clock: Clock,
        watch: Watch,
        cancelled: Callable[[], bool],
    ) -> None:
        self.deleted: Counter[Table] = Counter(dict.fromkeys(job.the_policy.tables, 0))
        self.batches = 0
        self.retries = 0
        self.left_locked = False
        self.hold: str | None = None
        self._job = job
        self._policy = job.the_policy
        self._run_id = run_id
        self._cutoff = cutoff
        self._budget = budget
        self._wait = wait
        self._clock = clock
        self._watch = watch
        self._cancelled = cancelled
        self._size = BatchSize(job.batch_size, job.batch_size)
        self._floor: str | None = None
        self._lock_leaves = 0
        self._left: list[Any] = []
        self._begin_batch()

    def run(self, connection: Connection, key: int) -> StopReason:
        """Takes batches on this connection, which holds the lock `key`.

        Raises Refused, RunFailed, or the psycopg.Error that cost the connection.
        """
        self._floor = None
        while (stop := self._stop()) is None:
            started = self._clock()
            timeout = self._budget.clamp(self._timeout, started)
            try:
                result = self._take(connection, key, timeout)
            except LockNotHeld as error:
                raise _failed("lock_lost", error) from None
            except (ListedFailure, psycopg.Error, NotDeleted) as error:
                cause, ids = (error.cause, error.ids) if isinstance(error, ListedFailure) else (error, ())
                if connection.closed:
                    raise cause from None
                stop = self._recover(cause, self._clock() - started, timeout, ids)
            else:
                stop = self._record(connection, result, self._clock() - started)
            if stop is not None:
                break
        return stop

    def _stop(self) -> StopReason | None:
        if self._wait(0) or self._cancelled():
            return "cancelled"
        self.hold = hold_reason(self._job.hold_file)
        if self.hold is not None:
            return "held"
        return self._budget.stop(self.batches, self._clock())

    def _take(self, connection: Connection, key: int, timeout: float) -> BatchResult:
        return delete_batch(
            connection,
            self._policy,
            Selection(key, self._cutoff, self._size.current, self._floor, tuple(self._left)),
            timeout=timeout,
            lock_timeout=self._budget.clamp(self._job.lock_timeout.total_seconds(), self._clock()),
            listed=self._listed,
        )

    def _record(self, connection: Connection, result: BatchResult, took: float) -> StopReason | None:
        if not result.picked:
            if self._floor is None:
                self.left_locked = self._any_left(connection)
                return "empty"
            # The floor may have passed over rows that nobody holds any more.
            self._floor = None
            return None
        self.batches += 1
        self.deleted.update(result.deleted)
        self._floor = result.floor
        self._size = self._size.after(took, self._job.batch_timeout.total_seconds())
        self._lock_leaves = 0
        self._begin_batch()
        self._watch(BatchCommitted(self._run_id, self.batches, result.deleted, took))
        return None

    def _any_left(self, connection: Connection) -> bool:
        try:
            return expired_left(connection, self._policy, self._cutoff)
        except psycopg.Error:
            # Everything that could be taken is gone; that nobody could look changes nothing of it.
            return bool(self._left)

    def _begin_batch(self) -> None:
        self._attempts = 0
        self._listed = False
        self._single = False
        self._timeout = self._job.batch_timeout.total_seconds()

    def _recover(
        self, error: psycopg.Error | NotDeleted, took: float, timeout: float, ids: tuple[Any, ...]
    ) -> StopReason | None:
        """Makes ready for another attempt, or ends the run."""
        if isinstance(error, NotDeleted):
            return self._poisoned(error, ids)
        match fault_of(error.sqlstate):
            case Fault.CANCELED:
                if self._cancelled():
                    return "cancelled"
                if took + _TIMER_GRAIN < timeout:
                    raise _failed("terminated", error, ids)
                if timeout < self._timeout:
                    return "max_duration"
                return self._too_slow(error, ids)
            case Fault.LOCKED:
                return self._blocked(error, ids)
            case Fault.CONFLICT:
                return self._again(error, "conflict")
            case Fault.LATE_CHILD if self._attempts == 0 < self._job.batch_retries and not ids:
                return self._again(error, "late_child")
            case Fault.REFUSED:
                raise Refused(sentence(error))
            case Fault.LATE_CHILD | Fault.POISON:
                return self._poisoned(error, ids)
        raise error

    def _too_slow(self, error: psycopg.Error, ids: tuple[Any, ...]) -> StopReason | None:
        if self._size.current > 1:
            self._size = self._size.halved()
        elif not self._single:
            self._single = self._listed = True
            self._timeout = self._job.single_timeout.total_seconds()
        else:
            raise _failed("timeout", error, ids)
        return self._retry(error, "too_slow", 0)

    def _blocked(self, error: psycopg.Error, ids: tuple[Any, ...]) -> StopReason | None:
        """Known roots whose children are locked: the batch is halved down to the one, which is left. Where no
        row was at fault (a table is locked, and the error has no context), no halving helps."""
        if not ids or not error.diag.context:
            self._listed = True
            return self._again(error, "locked")
        if self._size.current > 1:
            self._size = self._size.halved()
            return self._retry(error, "locked", 0)
        self._left.extend(ids)
        self._lock_leaves += 1
        if self._lock_leaves > self._job.batch_retries:
            raise _failed("transient", error, ids)
        self._begin_batch()
        return self._retry(error, "left_locked", 0)

    def _poisoned(self, error: Exception, ids: tuple[Any, ...]) -> StopReason | None:
        """The first time the same batch is tried once more by an explicit list, so that its failure has names: a
        failed statement returns no ids, and a new pick may take other rows."""
        if self._listed:
            raise _failed("poison", error, ids)
        self._listed = True
        return self._retry(error, "poison", 0)

    def _again(self, error: psycopg.Error, reason: RetryReason) -> StopReason | None:
        self._attempts += 1
        if self._attempts > self._job.batch_retries:
            raise _failed("transient", error)
        return self._retry(error, reason, pause_before(self._attempts))

    def _retry(self, error: Exception, reason: RetryReason, pause: float) -> StopReason | None:
        self.retries += 1
        sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
        self._watch(
            Retrying(self._run_id, reason, sqlstate, sentence(error), self._attempts, pause, self._size.current)
        )
        left = max(0.0, self._budget.deadline - self._clock())
        return "cancelled" if pause and self._wait(min(pause, left)) else None


def _failed(kind: FailureKind, error: Exception, ids: tuple[Any, ...] = ()) -> RunFailed:
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return RunFailed(Failure(kind, sentence(error), sqlstate, tuple(map(str, ids))))
