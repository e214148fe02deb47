"""Everything that watches runs: the log, the metrics and the spans."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import disable_created_metrics

from activity_retention.events import Event, Watch
from activity_retention.log import RunLog
from activity_retention.metrics import RunMetrics
from activity_retention.settings import Settings


class Telemetry:
    """Hands each event to the spans, the metrics, the log and to whoever else watches, in this order: log lines
    carry the trace. Trouble in one of them reaches neither the run nor the others.

    With `quiet` the runs themselves write no log lines. `traced` says that spans are wanted.
    """

    def __init__(
        self, settings: Settings, logger: Any, *, traced: bool, quiet: bool = False, others: Sequence[Watch] = ()
    ) -> None:
        self._logger = logger
        # They double the number of series, and Prometheus has no use for them in this format.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = RunMetrics(settings.job)
        self._traces = self._tracing() if traced else None
        log = RunLog(logger, self._traces.trace_id if self._traces else dict)
        self._watches: list[Watch] = [
            *([self._traces] if self._traces else []),
            self.metrics,
            *([] if quiet else [log]),
            *others,
        ]

    def watch(self, event: Event) -> None:
        for watch in self._watches:
            try:
                watch(event)
            except Exception as error:
                self._logger.error("telemetry failed", error=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Sends the spans that are left, for at most two seconds (case F13)."""
        if self._traces:
            self._traces.close()

    def _tracing(self) -> Any:
        try:
            from activity_retention.traces import RunTraces, otlp_provider

            return RunTraces(otlp_provider(self._logger.warning))
        except ImportError:
            self._logger.warning(
                "the OTEL_* variables ask for traces, but the extra otel is not installed: "
                "pip install 'activity-retention[otel]'"
            )
        except Exception as error:
            self._logger.warning(f"the OTEL_* variables cannot be used, no spans are sent: {error}")
        return None
