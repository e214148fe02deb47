"""Ages of the roots, drawn in the terminal with the cutoff marked."""

from datetime import timedelta

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from activity_retention.duration import format_duration
from activity_retention.plan import Bar, Histogram

_BAR_WIDTH = 40


def draw(histogram: Histogram, retention_period: timedelta) -> RenderableType:
    """Bars from the youngest to the oldest; those past the cutoff are red."""
    if not histogram.bars:
        return Text("none" if histogram.exact else "not drawn: it took more than five seconds", style="dim")
    most = max(1, *(bar.roots for bar in histogram.bars))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    marked = False
    for bar in histogram.bars:
        if bar.expired and not marked:
            grid.add_row("cutoff", Text("─" * _BAR_WIDTH, style="bold red"), "")
            marked = True
        about = "" if histogram.exact else "~"
        blocks = _blocks(bar.roots / most)
        grid.add_row(_ages(bar), Text(blocks, style="red" if bar.expired else "green"), f"{about}{bar.roots:,}")
    if marked:
        return grid
    return Group(grid, Text(f"nothing is older than {format_duration(retention_period)}", style="dim"))


def _blocks(share: float) -> str:
    eighths = round(share * _BAR_WIDTH * 8)
    if share and not eighths:
        eighths = 1
    whole, part = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[part]


def _ages(bar: Bar) -> str:
    unit, name = next(
        (unit, name)
        for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(milliseconds=1), "ms"))
        if bar.until is None or bar.until - bar.since >= unit
    )
    since = round(bar.since / unit)
    return f"{since:,}–{round(bar.until / unit):,} {name}" if bar.until else f"{since:,} {name} and more"
