"""Draws docs/images/plan-and-run.svg: what a terminal shows of `plan` and `run`, from the real commands."""

import os
import re
import sys
from io import StringIO
from pathlib import Path

import pexpect
import psycopg
from rich.console import Console
from rich.text import Text

from activity_retention.sandbox.sample import load_sample
from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import private_server

COLUMNS = 92
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "plan-and-run.svg"
PROGRAM = Path(sys.executable).with_name("activity-retention")


def main() -> None:
    with private_server() as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE app")
        with psycopg.connect(server.url("app"), autocommit=True) as connection:
            create_schema(connection)
            load_sample(connection, rows=300_000)
        screen = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
        for command in ("plan", "run --yes --batch-size 1000"):
            screen.print(Text.assemble(("$ ", "dim"), (f"activity-retention {command}", "bold")))
            screen.print(Text.from_ansi(shown(command, server.url("app", "activity_retention"))))
    svg = screen.export_svg(title="activity-retention")
    # The font is the reader's own: a picture that fetches one from elsewhere tells on its readers.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    PICTURE.write_text(svg.replace("Fira Code", "ui-monospace, Menlo, Consolas"), encoding="utf-8")
    print(f"drawn: {PICTURE.name}")


def shown(command: str, url: str) -> str:
    """What stays on the screen after the command, colours included."""
    child = pexpect.spawn(
        str(PROGRAM),
        command.split(),
        env={
            **os.environ,
            "ACTIVITY_RETENTION_DATABASE_URL": url,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        },
        dimensions=(60, COLUMNS),
        encoding="utf-8",
        timeout=120,
    )
    child.expect(pexpect.EOF)
    child.wait()
    if child.exitstatus:
        sys.exit(child.before)
    # A live line is drawn over and over: erase what each new drawing erases.
    lines = [
        line.split("\x1b[2K")[-1].split("\r")[-1] for line in str(child.before).replace("\r\n", "\n").split("\n")
    ]
    return re.sub(r"\x1b\[(\?25[lh]|\d*[ABCDJK])", "", "\n".join(lines))


if __name__ == "__main__":
    main()
