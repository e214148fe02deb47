"""What a person sees."""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

from activity_retention.cli import histogram
from activity_retention.doctor import Finding
from activity_retention.duration import format_duration
from activity_retention.events import Finished
from activity_retention.plan import Count, Plan, Survey
from activity_retention.preparation import Backlog
from activity_retention.settings import JobSettings

if TYPE_CHECKING:
    from activity_retention.cli.status import Holding
    from activity_retention.sandbox.proof import Check

_MARGIN = 2
_IDS_SHOWN = 3
_STATEMENT_SHOWN = 100

_STOPS = {
    "empty": "nothing eligible is left",
    "max_batches": "max_batches_per_run reached, the next run goes on",
    "max_duration": "max_run_duration reached, the next run goes on",
    "cancelled": "committed batches stay",
    "held": "committed batches stay, no other starts",
    "observed": "a dry run, nothing was deleted",
    "locked": "another run holds the lock",
    "failed": "committed batches stay",
    "refused": "no retry would mend it",
}
_COLOURS = {"completed": "green", "failed": "red", "refused": "red"}


def draw_plan(plan: Plan, place: Mapping[str, str], job: JobSettings, *, sql: bool) -> None:
    out = _console()
    facts = _grid()
    _survey_rows(facts, plan.survey, job)
    facts.add_row("Work", _work(plan, job))
    if plan.drained_by:
        facts.add_row("Done by", f"{_moment(plan.drained_by)}, unless runs are cut by time")
    rows = _grid()
    rows.columns[1].justify = "right"
    for table, count in plan.rows.items():
        rows.add_row(str(table), _number(count))
    reads = _grid()
    for name, index in dict.fromkeys((str(scan.table), scan.index) for scan in plan.scans):
        reads.add_row(name, index or Text("reads the whole table", style="yellow"))
    sections: list[tuple[str, Any]] = [
        ("Rows to go", rows),
        (
            f"Age of {job.the_policy.state} rows of {job.the_policy.root}",
            histogram.draw(plan.histogram, job.retention_period),
        ),
        ("Indexes that serve a batch", reads),
    ]
    out.print(_title(place, job))
    out.print(Padding(facts, (1, _MARGIN)))
    for heading, body in sections:
        out.print(Text(heading, style="bold"))
        out.print(Padding(body, (0, _MARGIN, 1, _MARGIN)))
    _warn(out, plan.warnings)
    if sql:
        out.print(Text("The statement of a batch", style="bold"))
        if out.is_terminal:
            out.print(Padding(Syntax(plan.statement, "postgresql", background_color="default"), (0, _MARGIN)))
        else:
            print(plan.statement)


def draw_status(
    place: Mapping[str, str],
    job: JobSettings,
    cutoff: str,
    backlog: Backlog,
    hold: str | None,
    fire: datetime,
    lock: str,
    key: int,
    holding: "Holding | None",
) -> None:
    facts = _grid()
    facts.add_row("Cutoff", f"{instant(cutoff)}, now less {format_duration(job.retention_period)}")
    count = backlog.count
    facts.add_row("Backlog", "unknown" if count is None else _number(Count(count, backlog.exact)))
    facts.add_row("Oldest", _oldest(backlog.oldest) if backlog.exact else "unknown")
    facts.add_row("Hold", Text(hold, style="yellow") if hold else "none")
    facts.add_row("Next run", _moment(fire))
    facts.add_row("Lock", f"{lock} (key {key})")
    facts.add_row("Held by", _holding(holding) if holding else "nobody")
    out = _console()
    out.print(_title(place, job))
    out.print(Padding(facts, (1, _MARGIN)))


def draw_config(
    settings: Mapping[str, Any],
    sources: Mapping[str, str],
    fires: Sequence[datetime],
    cutoff: str | None,
    trouble: str | None,
) -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("setting", "value", "from"):
        grid.add_column(heading, overflow="fold")
    for key, value in settings.items():
        default = sources[key] == "default"
        shown = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        grid.add_row(key, shown, sources[key], style="dim" if default else None)
    out = _console()
    out.print(grid)
    out.print()
    out.print(Text("Next runs", style="bold"))
    for fire in fires:
        out.print(Padding(Text(_moment(fire)), (0, _MARGIN)))
    out.print()
    out.print(Text.assemble(("Cutoff  ", "bold"), instant(cutoff) if cutoff else (trouble or "", "yellow")))


def draw_result(finished: Finished) -> None:
    result = finished.result
    out = _console()
    colour = _COLOURS.get(result.outcome, "yellow")
    out.print(Text.assemble((result.outcome, f"bold {colour}"), f": {_STOPS[result.stop_reason]}"))
    if why := result.failure.message if result.failure else finished.reason:
        out.print(Padding(Text(why), (0, _MARGIN)))
    if result.failure and result.failure.batch_ids:
        out.print(Padding(Text(_ids(result.failure.batch_ids)), (0, _MARGIN)))
    if result.outcome == "observed" and result.eligible_backlog is not None:
        backlog = _number(Count(result.eligible_backlog, result.backlog_exact))
        out.print(Padding(Text(f"{backlog} rows of {result.policy.root} have expired"), (0, _MARGIN)))
    if result.left_locked:
        out.print(Text("some expired rows were locked by others; the next run takes them", style="yellow"))
    if not result.rows and result.outcome != "completed":
        return
    grid = _grid()
    for table in result.policy.counters:
        grid.add_row(str(table), f"{result.deleted.get(table, 0):,}")
    grid.add_row("batches", f"{result.batches_processed:,}")
    if result.rows and result.duration_seconds:
        grid.add_row("rows a second", f"{result.rows / result.duration_seconds:,.0f}")
    grid.add_row("duration", f"{result.duration_seconds:.1f} s")
    if result.retries:
        grid.add_row("retries", str(result.retries))
    grid.columns[1].justify = "right"
    out.print(Padding(grid, (0, _MARGIN)))


def _ids(batch_ids: Sequence[str]) -> str:
    more = f" and {len(batch_ids) - _IDS_SHOWN:,} more (--json has all)" if len(batch_ids) > _IDS_SHOWN else ""
    return f"in the batch of {', '.join(batch_ids[:_IDS_SHOWN])}{more}"


def ask(survey: Survey, place: Mapping[str, str], job: JobSettings) -> bool:
    """Shows on stderr what is about to happen, and whether the answer was yes."""
    out = _console(stderr=True)
    facts = _grid()
    _survey_rows(facts, survey, job)
    out.print(_title(place, job))
    out.print(Padding(facts, (1, _MARGIN)))
    _warn(out, survey.warnings)
    out.print("Delete them with their children? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def instant(text: str) -> str:
    """An ISO 8601 instant of the server, to the second; `infinity` and years BC as they come."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?\+00:00", text)
    return f"{match[1]} {match[2]} UTC" if match else text


def _console(*, stderr: bool = False) -> Console:
    # Names come from databases: [bold] in one of them is no markup.
    return Console(stderr=stderr, markup=False, highlight=False)


def _title(place: Mapping[str, str], job: JobSettings) -> Text:
    return Text.assemble(
        (job.policy, "bold"), " on ", (place["host"], "cyan"), " database ", (place["database"], "cyan"),
        " as ", (place["role"], "cyan"),
    )  # fmt: skip


def _grid() -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _survey_rows(grid: Grid, survey: Survey, job: JobSettings) -> None:
    grid.add_row("Cutoff", f"{instant(survey.cutoff)}, now less {format_duration(job.retention_period)}")
    backlog = survey.backlog
    count = (
        "unknown: the table is locked" if backlog.count is None else _number(Count(backlog.count, backlog.exact))
    )
    grid.add_row("Backlog", f"{count} of {_number(survey.roots)} {job.the_policy.root.name} ({survey.share:.1%})")
    grid.add_row("Oldest", _oldest(backlog.oldest))


def _oldest(oldest: str | None) -> str:
    if oldest is None:
        return "none"
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(oldest)
    except ValueError:
        return oldest
    return f"{instant(oldest)}, {age.days:,} days ago"


def _work(plan: Plan, job: JobSettings) -> str:
    if not plan.batches:
        return "nothing to do"
    batches = f"{plan.batches:,} {_plural(plan.batches, 'batch', 'batches')} of up to {job.batch_size:,}"
    runs = f"{plan.runs:,} {_plural(plan.runs, 'run', 'runs')} of at most {format_duration(job.max_run_duration)}"
    return f"{batches} in {runs}"


def _warn(out: Console, findings: Sequence[Finding]) -> None:
    for finding in findings:
        out.print(Text.assemble(("warning ", "bold yellow"), f"{finding.message}: {finding.why}"))
        out.print(Padding(Text(finding.mend, style="cyan"), (0, 0, 1, _MARGIN)))


def _holding(holding: "Holding") -> Grid:
    holder = holding.holder
    grid = _grid()
    grid.add_row("pid", str(holder.pid))
    grid.add_row("application", holder.application or "(no name)")
    grid.add_row("role", holder.user)
    if holder.hidden:
        grid.add_row("the rest", f"is hidden from this role: {holding.reveal}")
    else:
        statement = " ".join((holder.query or "").split())
        grid.add_row("client", holder.client or "local socket")
        grid.add_row("connected", f"{_span(holding.connected)} ago, {holder.since}")
        grid.add_row("state", f"{holder.state} for {_span(holding.unchanged)}")
        grid.add_row(
            "statement" if holder.state == "active" else "its last",
            shorten(statement, _STATEMENT_SHOWN, placeholder=" …"),
        )
    grid.add_row("this is", Text(holding.what, style="yellow"))
    grid.add_row("free it", holding.free)
    return grid


def _span(span: timedelta | None) -> str:
    return "?" if span is None else str(timedelta(seconds=round(span.total_seconds())))


def _moment(moment: datetime) -> str:
    return moment.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _number(count: Count) -> str:
    return f"{'' if count.exact else 'about '}{count.rows:,}"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def draw_proof(checks: "Sequence[Check]") -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("", "proof", "found, as expected"):
        grid.add_column(heading)
    for check in checks:
        if check.holds:
            grid.add_row(Text("✓", style="green"), check.name, Text(check.found, style="dim"))
        else:
            found = Text(f"expected {check.expected}, found {check.found}", style="bold red")
            grid.add_row(Text("✗", style="bold red"), check.name, found)
    out = _console()
    out.print(grid)
    failed = sum(not check.holds for check in checks)
    out.print()
    if failed:
        out.print(Text(f"{failed} of {len(checks)} checks failed", style="bold red"))
    elif checks:
        out.print(Text("Proved: only what had expired is gone.", style="bold green"))
