"""What a run tells its watchers while it goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from activity_retention.doctor import Finding
from activity_retention.policy import Table
from activity_retention.result import RunResult

RetryReason = Literal[
    "connection", "lock_lost", "locked", "left_locked", "conflict", "late_child", "too_slow", "poison"
]


@dataclass(frozen=True)
class Began:
    """A run begins; nothing has been looked at yet."""

    run_id: str
    policy: str


@dataclass(frozen=True)
class Started:
    """The lock is ours, the cutoff fixed and the backlog counted; `backlog` is None where the count failed,
    `oldest_age` (in seconds) as well where it had to be estimated."""

    run_id: str
    policy: str
    cutoff: str
    batch_size: int
    backlog: int | None
    backlog_exact: bool
    oldest_age: float | None


@dataclass(frozen=True)
class Warned:
    """Something to know that stops nothing."""

    run_id: str
    finding: Finding | str


@dataclass(frozen=True)
class BatchCommitted:
    """A batch is gone for good; `index` counts from 1, `seconds` is what it took."""

    run_id: str
    index: int
    deleted: Mapping[Table, int]
    seconds: float


@dataclass(frozen=True)
class Retrying:
    """A batch or a connection failed in a way that may pass; it is tried again after `pause` seconds."""

    run_id: str
    reason: RetryReason
    sqlstate: str | None
    message: str
    attempt: int
    pause: float
    batch_size: int | None


@dataclass(frozen=True)
class Finished:
    """The run is over; `reason` is who holds the lock, or why the job is on hold."""

    result: RunResult
    reason: str | None = None


Event = Began | Started | Warned | BatchCommitted | Retrying | Finished
Watch = Callable[[Event], None]
