"""`activity-retention plan`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activity_retention.config import Loaded

if TYPE_CHECKING:
    from activity_retention.plan import Plan


def plan(
    loaded: Loaded,
    json: bool,
    sql: Annotated[bool, typer.Option("--sql", help="show the very statement of a batch")] = False,
) -> int:
    """Show what a run would delete, and change nothing."""
    from activity_retention.cli.command import print_json
    from activity_retention.cli.connection import looking, where
    from activity_retention.plan import read_plan

    with looking(loaded.settings, "plan") as connection:
        found = read_plan(connection, loaded.settings.job)
        place = where(connection)
    if json:
        print_json(to_json(found, place, loaded, sql=sql))
        return 0
    from activity_retention.cli.terminal import draw_plan

    draw_plan(found, place, loaded.settings.job, sql=sql)
    return 0


def to_json(found: "Plan", place: dict[str, str], loaded: Loaded, *, sql: bool) -> dict[str, Any]:
    job = loaded.settings.job
    return {
        **place,
        "policy": job.policy,
        "cutoff": found.survey.cutoff,
        "eligibleBacklog": found.survey.backlog.count,
        "backlogExact": found.survey.backlog.exact,
        "oldest": found.survey.backlog.oldest,
        "roots": found.survey.roots.rows,
        "rootsExact": found.survey.roots.exact,
        "share": round(found.survey.share, 6),
        "rows": {str(table): asdict(count) for table, count in found.rows.items()},
        "batches": found.batches,
        "runs": found.runs,
        "drainedBy": found.drained_by.isoformat() if found.drained_by else None,
        "histogram": {
            "exact": found.histogram.exact,
            "bars": [
                {
                    "sinceSeconds": bar.since.total_seconds(),
                    "untilSeconds": bar.until.total_seconds() if bar.until else None,
                    "roots": bar.roots,
                    "expired": bar.expired,
                }
                for bar in found.histogram.bars
            ],
        },
        "scans": [{"table": str(scan.table), "index": scan.index} for scan in found.scans],
        "findings": [asdict(finding) for finding in found.warnings],
        **({"statement": found.statement} if sql else {}),
    }
