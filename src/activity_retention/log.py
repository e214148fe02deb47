"""Log lines of a run (R-OBS-1): ids and counters only."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from activity_retention.doctor import Finding
from activity_retention.events import BatchCommitted, Event, Finished, Retrying, Started, Warned
from activity_retention.policy import Table
from activity_retention.result import RunResult

# An Error line with 5,000 uuids is 190 KB and gets cut on its way.
_IDS_IN_A_LINE = 20


class RunLog:
    """Writes a run's events to a structlog logger; `bound` is asked for what each line shall carry besides."""

    def __init__(self, logger: Any, bound: Callable[[], Mapping[str, str]] = dict) -> None:
        self._unbound = logger
        self._bound = bound

    @property
    def _logger(self) -> Any:
        return self._unbound.bind(**self._bound())

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._logger.info(
                    "run started",
                    run_id=event.run_id,
                    policy=event.policy,
                    cutoff=event.cutoff,
                    batch_size=event.batch_size,
                    eligible_backlog=event.backlog,
                    backlog_exact=event.backlog_exact,
                )
            case Warned(run_id, str(sentence)):
                self._logger.warning(sentence, run_id=run_id)
            case Warned(finding=Finding() as finding):
                self._logger.warning(
                    finding.message,
                    run_id=event.run_id,
                    finding=finding.id,
                    why=finding.why,
                    mend=finding.mend,
                )
            case BatchCommitted():
                self._logger.debug(
                    "batch committed",
                    run_id=event.run_id,
                    batch_index=event.index,
                    **_counts(event.deleted),
                    seconds=round(event.seconds, 3),
                )
            case Retrying():
                self._logger.warning(
                    "retrying",
                    run_id=event.run_id,
                    reason=event.reason,
                    sqlstate=event.sqlstate,
                    error=event.message,
                    attempt=event.attempt,
                    pause_seconds=round(event.pause, 3),
                    batch_size=event.batch_size,
                )
            case Finished():
                self._finished(event.result, event.reason)

    def _finished(self, result: RunResult, reason: str | None) -> None:
        run_id = str(result.run_id)
        facts = {
            "run_id": run_id,
            "policy": result.policy.name,
            "stop_reason": result.stop_reason,
            **_counts(result.deleted),
            "batches_processed": result.batches_processed,
            "has_more": result.has_more,
            "left_locked": result.left_locked,
            "retries": result.retries,
            "duration_seconds": round(result.duration_seconds, 3),
        }
        match result.outcome:
            case "skipped":
                self._logger.warning("run skipped, lock busy", run_id=run_id, reason=reason)
            case "refused":
                message = result.failure.message if result.failure else ""
                self._logger.error("run refused", **facts, error=message)
            case "failed" if result.failure:
                ids = result.failure.batch_ids
                self._logger.error(
                    "run failed",
                    **facts,
                    kind=result.failure.kind,
                    sqlstate=result.failure.sqlstate,
                    error=result.failure.message,
                    batch_ids=list(ids[:_IDS_IN_A_LINE]),
                    batch_ids_count=len(ids),
                )
            case outcome:
                note = {"reason": reason} if reason else {}
                self._logger.info(f"run {outcome}", **facts, **note)


def _counts(deleted: Mapping[Table, int]) -> dict[str, int]:
    """`deleted_action_events` and so on: a table's name tells what it counts."""
    return {f"deleted_{table.name}": n for table, n in deleted.items()}


def stderr_logger(level: str, renderer: str) -> Any:
    """A structlog logger that writes lines of at least `level` to stderr, as `console` or `json`; it leaves
    structlog's and Python's own configuration alone."""
    import logging

    import structlog

    last = (
        structlog.processors.JSONRenderer()
        if renderer == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)
    )
    return structlog.wrap_logger(
        _Stderr(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )


class _Stderr:
    """Writes to whatever stderr is at the time: a progress bar puts itself in its place. A closed pipe or a full
    disk behind it stops no run."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(message, file=sys.stderr, flush=True)

    debug = info = warning = error = msg
