"""`activity-retention status`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from activity_retention.config import Loaded
from activity_retention.duration import format_duration

if TYPE_CHECKING:
    from activity_retention.lock import Holder
    from activity_retention.session import Connection


@dataclass(frozen=True)
class Holding:
    """Who holds the lock, for how long it has been connected and in its state, what it is, the SQL that frees the
    lock, and the SQL that lets this role see what is hidden from it."""

    holder: "Holder"
    connected: timedelta | None
    unchanged: timedelta | None
    what: str
    free: str
    reveal: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.holder),
            "connectedSeconds": self.connected and round(self.connected.total_seconds()),
            "stateSeconds": self.unchanged and round(self.unchanged.total_seconds()),
            "what": self.what,
            "free": self.free,
            "reveal": self.reveal,
        }


def status(loaded: Loaded, json: bool) -> int:
    """Show the backlog, a hold, the next fire time, and who holds the lock and how to free it."""
    from activity_retention.cli.command import print_json, refusal
    from activity_retention.cli.connection import looking, where
    from activity_retention.errors import Refused
    from activity_retention.hold import hold_reason
    from activity_retention.lock import lock_key, lock_name
    from activity_retention.preparation import Backlog, check, count_backlog, read_cutoff

    job = loaded.settings.job
    name = lock_name(job.policy)
    key = lock_key(name)
    reasons: Sequence[str] = ()
    with looking(loaded.settings, "status") as connection:
        place = where(connection)
        holding = _holding(connection, key, place["role"], job.max_run_duration)
        cutoff = read_cutoff(connection, job.retention_period)
        try:
            check(connection, job.the_policy)
            backlog = count_backlog(connection, job.the_policy, cutoff)
        except Refused as error:
            # Who holds the lock is worth knowing even where the rows are out of reach.
            backlog, reasons = Backlog(None, False), error.reasons
    hold = hold_reason(job.hold_file)
    fire = job.schedule.upcoming(datetime.now(UTC), 1)[0]
    if json:
        print_json(
            {
                **place,
                "policy": job.policy,
                "cutoff": cutoff,
                "eligibleBacklog": backlog.count,
                "backlogExact": backlog.exact,
                "oldest": backlog.oldest,
                "hold": hold,
                "nextRun": fire.isoformat(),
                "lock": {"name": name, "key": key, "holder": holding.to_json() if holding else None},
                **(_refusal(reasons) if reasons else {}),
            }
        )
    else:
        from activity_retention.cli.terminal import draw_status

        draw_status(place, job, cutoff, backlog, hold, fire, name, key, holding)
    return refusal(reasons, as_json=False) if reasons else 0


def _refusal(reasons: Sequence[str]) -> dict[str, Any]:
    return {
        "outcome": "refused",
        "stopReason": "refused",
        "hasMore": None,
        "failure": {"kind": "refused", "sqlstate": None, "message": "\n".join(reasons), "batchIds": []},
        "reasons": list(reasons),
    }


def _holding(connection: "Connection", key: int, role: str, max_run_duration: timedelta) -> Holding | None:
    from psycopg.sql import Identifier

    from activity_retention.lock import lock_holder

    holder = lock_holder(connection, key)
    if holder is None:
        return None
    connected, unchanged = connection.execute(
        """
        SELECT pg_catalog.clock_timestamp() - backend_start,
               pg_catalog.clock_timestamp() - state_change
          FROM pg_catalog.pg_stat_activity
         WHERE pid = %s
        """,
        [holder.pid],
    ).fetchone() or (None, None)
    return Holding(
        holder,
        connected,
        unchanged,
        _what(holder, connected, max_run_duration),
        free=f"SELECT pg_terminate_backend({holder.pid});",
        reveal=f"GRANT pg_read_all_stats TO {Identifier(role).as_string()};" if holder.hidden else None,
    )


def _what(holder: "Holder", connected: timedelta | None, max_run_duration: timedelta) -> str:
    if not (holder.application or "").startswith("activity-retention "):
        return "no session of activity-retention: ask whose it is before you end it"
    if connected is None:
        return "a run; whether it is at work or hangs is hidden"
    if connected > max_run_duration:
        limit = format_duration(max_run_duration)
        return f"older than a run may get ({limit}): its process hangs, or a pooler has kept the session"
    return "a run at work: let it; one that you end does not try again before the next tick"
