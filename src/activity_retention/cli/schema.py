"""`activity-retention schema`."""

from typing import Annotated, Literal

import typer

from activity_retention.config import Loaded

Part = Literal["tables", "indexes", "role"]
_PARTS: tuple[Part, ...] = ("tables", "indexes", "role")


def schema(
    loaded: Loaded,
    json: bool,
    only: Annotated[Part | None, typer.Option("--only", help="just the tables, the indexes or the role")] = None,
) -> int:
    """Print the reference tables, the indexes that the job needs and a least-privilege role, as SQL for psql."""
    from activity_retention.cli.command import print_json
    from activity_retention.sql import read_sql

    parts = {part: read_sql(part) for part in _PARTS if only in (None, part)}
    if json:
        print_json(parts)
    else:
        print("\n".join(text.strip() + "\n" for text in parts.values()), end="")
    return 0
