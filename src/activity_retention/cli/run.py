"""`activity-retention run`."""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from activity_retention.config import Loaded
from activity_retention.events import Event, Finished, Watch
from activity_retention.result import RunResult

if TYPE_CHECKING:
    from activity_retention.telemetry import Telemetry


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
    page = sys.stdout.isatty() and not json
    finished, code = run_watched(loaded, page=page)
    if json:
        print_json(finished.result.to_json())
    elif page:
        from activity_retention.cli.terminal import draw_result

        draw_result(finished)
    return code


def run_watched(loaded: Loaded, *, page: bool) -> tuple[Finished, int]:
    """One run with signals obeyed, its end and the exit code.

    On a terminal there is a progress bar. Log lines are written as well, unless a person will see the result on
    a `page` and has not asked for them.
    """
    from activity_retention.cli.stop import Stop
    from activity_retention.config import traces_wanted
    from activity_retention.job import ActivityRetentionJob
    from activity_retention.log import stderr_logger
    from activity_retention.telemetry import Telemetry

    settings = loaded.settings
    live = sys.stderr.isatty()
    asked = {loaded.sources["log_level"], loaded.sources["log_format"]} != {"default"}
    logger = stderr_logger(settings.log_level, settings.log_format or ("console" if live else "json"))
    ends: list[Finished] = []

    def keep_the_end(event: Event) -> None:
        if isinstance(event, Finished):
            ends.append(event)

    others: list[Watch] = [keep_the_end]
    with ExitStack() as stack:
        if live:
            from activity_retention.cli.progress import Progress

            others.append(stack.enter_context(Progress()))
        quiet = live and page and not asked
        telemetry = Telemetry(settings, logger, traced=traces_wanted(), quiet=quiet, others=others)
        job = ActivityRetentionJob(settings, watch=telemetry.watch)
        stop = stack.enter_context(Stop(settings.job.grace_period.total_seconds(), job.cancel))
        result = job.run(wait=stop.wait)
    _deliver(telemetry, loaded, logger)
    (finished,) = ends
    return finished, _exit_code(result, stop.exit_code)


def _deliver(telemetry: "Telemetry", loaded: Loaded, logger: Any) -> None:
    """Hands over metrics and spans; no trouble there changes how the run ended."""
    if loaded.settings.pushgateway_url or loaded.settings.textfile:
        from activity_retention.handover import hand_over

        for trouble in hand_over(telemetry.metrics.registry, loaded.settings):
            logger.warning(trouble)
    telemetry.close()


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
