"""`activity-retention run`."""

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from activity_retention.config import Loaded
from activity_retention.events import Event, Watch
from activity_retention.result import RunResult


def run(
    loaded: Loaded,
    json: bool,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask, on a terminal")] = False,
) -> int:
    """Delete what has expired, now."""
    from activity_retention.cli.command import print_json
    from activity_retention.config import require_database

    require_database(loaded.settings)
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    if interactive and not yes and not loaded.settings.job.dry_run and not _confirmed(loaded):
        print("Nothing was deleted.", file=sys.stderr)
        return 130
    result, code = run_watched(loaded, live=sys.stderr.isatty())
    if json:
        print_json(result.to_json())
    elif sys.stdout.isatty():
        from activity_retention.cli.terminal import draw_result

        draw_result(result)
    return code


def run_watched(loaded: Loaded, *, live: bool) -> tuple[RunResult, int]:
    """One run with log lines, a progress bar where `live`, and signals obeyed; the result and the exit code."""
    from activity_retention.cli.stop import Stop
    from activity_retention.job import ActivityRetentionJob
    from activity_retention.telemetry import RunLog, stderr_logger

    settings = loaded.settings
    level = settings.log_level
    if live and loaded.sources["log_level"] == "default":
        # The bar and the table at the end say what an Info line would.
        level = "warning"
    renderer = settings.log_format or ("console" if sys.stderr.isatty() else "json")
    watches: list[Watch] = [RunLog(stderr_logger(level, renderer))]
    with ExitStack() as stack:
        if live:
            from activity_retention.cli.progress import Progress

            watches.append(stack.enter_context(Progress()))

        def watch(event: Event) -> None:
            for one in watches:
                one(event)

        job = ActivityRetentionJob(settings, watch=watch)
        stop = stack.enter_context(Stop(settings.job.grace_period.total_seconds(), job.cancel))
        result = job.run(wait=stop.wait)
    return result, _exit_code(result, stop.exit_code)


def _exit_code(result: RunResult, cancelled: int) -> int:
    return {"failed": 1, "refused": 2, "cancelled": cancelled}.get(result.outcome, 0)


def _confirmed(loaded: Loaded) -> bool:
    from activity_retention.cli.connection import looking, where
    from activity_retention.cli.terminal import ask
    from activity_retention.plan import read_survey

    with looking(loaded.settings, "run") as connection:
        survey = read_survey(connection, loaded.settings.job)
        place = where(connection)
    return ask(survey, place, loaded.settings.job)
