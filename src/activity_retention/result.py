"""What a run did: counters only, no personal data (R-ALG-8)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from activity_retention.errors import Failure
from activity_retention.policy import Policy, Table

Outcome = Literal["completed", "cancelled", "held", "observed", "skipped", "failed", "refused"]

# How a run that was not a failure is called by what ended it, and whether rows are left for the next one.
_ENDINGS: dict[str, tuple[Outcome, bool]] = {
    "empty": ("completed", False),
    "max_batches": ("completed", True),
    "max_duration": ("completed", True),
    "cancelled": ("cancelled", True),
    "held": ("held", True),
}


@dataclass(frozen=True)
class RunResult:
    """The result of one run; `has_more` is None where nobody looked."""

    run_id: UUID
    policy: Policy
    outcome: Outcome
    stop_reason: str
    has_more: bool | None
    cutoff: str | None = None
    deleted: Mapping[Table, int] = field(default_factory=dict)
    batches_processed: int = 0
    left_locked: bool = False
    eligible_backlog: int | None = None
    backlog_exact: bool = False
    duration_seconds: float = 0.0
    retries: int = 0
    failure: Failure | None = None

    @property
    def rows(self) -> int:
        """Rows deleted from all tables."""
        return sum(self.deleted.values())

    def to_json(self) -> dict[str, Any]:
        """As `run --json` prints it."""
        failure = self.failure
        return {
            "runId": str(self.run_id),
            "policy": self.policy.name,
            "outcome": self.outcome,
            "stopReason": self.stop_reason,
            "cutoff": self.cutoff,
            **{name: self.deleted.get(table, 0) for table, name in self.policy.counters.items()},
            "deleted": {str(table): self.deleted.get(table, 0) for table in self.policy.tables},
            "batchesProcessed": self.batches_processed,
            "hasMore": self.has_more,
            "leftLocked": self.left_locked,
            "eligibleBacklog": self.eligible_backlog,
            "backlogExact": self.backlog_exact,
            "durationSeconds": round(self.duration_seconds, 3),
            "retries": self.retries,
            "failure": failure
            and {
                "kind": failure.kind,
                "sqlstate": failure.sqlstate,
                "message": failure.message,
                "batchIds": list(failure.batch_ids),
            },
        }


def ending(stop_reason: str, backlog: int | None) -> tuple[Outcome, bool | None]:
    """Outcome and has_more of a run that `stop_reason` ended; a dry run knows as much as its backlog says."""
    if stop_reason == "observed":
        return "observed", None if backlog is None else backlog > 0
    return _ENDINGS[stop_reason]
