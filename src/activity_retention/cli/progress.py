"""A live bar over the backlog while a run goes."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from activity_retention.events import BatchCommitted, Event, Started

_BAR_WIDTH = 40


class Progress:
    """Told of a run's events, it shows sessions of the backlog, rows a second, time left and the last batch."""

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
