"""`activity-retention status`."""

from dataclasses import asdict
from datetime import UTC, datetime

from activity_retention.config import Loaded


def status(loaded: Loaded, json: bool) -> int:
    """Show the backlog, a hold, the next fire time and who holds the lock."""
    from activity_retention.cli.command import print_json
    from activity_retention.cli.connection import looking, where
    from activity_retention.hold import hold_reason
    from activity_retention.lock import lock_holder, lock_key, lock_name
    from activity_retention.preparation import check, count_backlog, read_cutoff

    job = loaded.settings.job
    name = lock_name(job.policy)
    key = lock_key(name)
    with looking(loaded.settings, "status") as connection:
        holder = lock_holder(connection, key)
        check(connection, job.the_policy)
        cutoff = read_cutoff(connection, job.retention_period)
        backlog = count_backlog(connection, job.the_policy, cutoff)
        place = where(connection)
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
                "lock": {"name": name, "key": key, "holder": asdict(holder) if holder else None},
            }
        )
        return 0
    from activity_retention.cli.terminal import draw_status

    draw_status(place, job, cutoff, backlog, hold, fire, name, key, holder)
    return 0
