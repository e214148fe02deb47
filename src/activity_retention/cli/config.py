"""`activity-retention config`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from activity_retention.config import Loaded

_FIRES = 5


def config(
    loaded: Loaded,
    json: bool,
    json_schema: Annotated[
        bool,
        typer.Option("--json-schema", help="print the JSON Schema of activity-retention.toml and nothing else"),
    ] = False,
) -> int:
    """Show the settings in force, where each came from, the next fire times and the cutoff."""
    from activity_retention.cli.command import print_json
    from activity_retention.errors import RetentionError, Unreachable
    from activity_retention.settings import json_schema as schema
    from activity_retention.settings import values

    if json_schema:
        print_json(schema())
        return 0
    cutoff, trouble = None, None
    try:
        cutoff = _cutoff(loaded)
    except RetentionError as error:
        trouble = error
    fires = loaded.settings.job.schedule.upcoming(datetime.now(UTC), _FIRES)
    if json:
        print_json(
            {
                "settings": {
                    key: {"value": value, "source": loaded.sources[key]}
                    for key, value in values(loaded.settings).items()
                },
                "nextRuns": [fire.isoformat() for fire in fires],
                "cutoff": cutoff,
                "cutoffUnknown": str(trouble) if trouble else None,
            }
        )
    else:
        from activity_retention.cli.terminal import draw_config

        draw_config(values(loaded.settings), loaded.sources, fires, cutoff, str(trouble) if trouble else None)
    return 1 if isinstance(trouble, Unreachable) else 0


def _cutoff(loaded: Loaded) -> str:
    from activity_retention.cli.connection import looking
    from activity_retention.preparation import read_cutoff

    with looking(loaded.settings, "config") as connection:
        return read_cutoff(connection, loaded.settings.job.retention_period)
