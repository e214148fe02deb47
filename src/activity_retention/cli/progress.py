"""A live bar over the backlog while a run goes."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from activity_retention.doctor import Finding
from activity_retention.events import BatchCommitted, Event, Retrying, Started, Warned

_BAR_WIDTH = 40


class Progress:
    """Told of a run's events, it shows sessions of the backlog, rows a second, time left and the last batch, and
    says above the bar what goes wrong."""

    def __init__(self) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("deleting"),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.completed:,.0f}/{task.fields[backlog]} sessions"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[batch]}"),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._rows = 0
        self._seconds = 0.0

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and not self._rows:
            self._bars.update(self._task, visible=False)
        self._bars.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                backlog = "?" if event.backlog is None else f"{event.backlog:,}"
                self._task = self._bars.add_task("", total=event.backlog, backlog=backlog, rate="", batch="")
            case BatchCommitted() if self._task is not None:
                *_, roots = event.deleted.values()
                self._rows += sum(event.deleted.values())
                self._seconds += event.seconds
                self._bars.update(
                    self._task,
                    advance=roots,
                    rate=f"{self._rows / self._seconds:,.0f} rows/s" if self._seconds else "",
                    batch=f"batch {event.seconds:.2f} s",
                )
            case Warned(finding=Finding() as finding):
                self._say("warning", str(finding))
            case Warned(finding=sentence):
                self._say("warning", str(sentence))
            case Retrying():
                self._say("trying again", f"{event.message} ({event.reason})")

    def _say(self, what: str, sentence: str) -> None:
        # Above the bar, which stays where it is.
        self._bars.console.print(Text.assemble((f"{what}: ", "yellow"), sentence))
