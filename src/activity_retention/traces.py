"""Spans of runs and batches (R-OBS-3), sent as OTLP over HTTP where the standard OTEL_* variables say."""

import time
from collections.abc import Callable, Mapping
from logging import ERROR, Handler, LogRecord, getLogger
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context

from activity_retention import __version__
from activity_retention.at_most import at_most
from activity_retention.errors import Failure
from activity_retention.events import BatchCommitted, Began, Event, Finished, Retrying, Started
from activity_retention.result import RunResult

_PREFIX = "activity_retention."
_SECONDS = 2
_sdk_logger = getLogger("opentelemetry")


class RunTraces:
    """Turns the events of runs into a span a run and a span a batch.

    A batch's span holds its retries as events; it begins where the batch before it ended if there were any,
    else when its statement did.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("activity_retention", __version__)
        self._run: Span | None = None
        self._trace_id: dict[str, str] = {}
        self._boundary: int | None = None
        self._retries: list[tuple[int, Retrying]] = []

    def __call__(self, event: Event) -> None:
        match event:
            case Began():
                self._begin(event)
            case Started() if self._run:
                self._move_retries(self._run)
                self._boundary = time.time_ns()
                self._run.set_attributes(
                    _attributes(cutoff=event.cutoff, batch_size=event.batch_size, eligible_backlog=event.backlog)
                )
            case Retrying():
                self._retries.append((time.time_ns(), event))
            case BatchCommitted():
                self._batch(event)
            case Finished(result) if self._run:
                self._end(self._run, result)

    def trace_id(self) -> Mapping[str, str]:
        """The trace of the run that is going or was the last, for log lines."""
        return self._trace_id

    def close(self) -> None:
        """Sends what is left, for at most two seconds (case F13)."""
        if not at_most(_SECONDS, self._provider.shutdown):
            _sdk_logger.error("the collector did not answer within %d s", _SECONDS)

    def _begin(self, event: Began) -> None:
        self._boundary, self._retries = None, []
        self._run = self._tracer.start_span(
            "activity-retention run",
            kind=SpanKind.INTERNAL,
            attributes=_attributes(run_id=event.run_id, policy=event.policy),
        )
        self._trace_id = {"trace_id": format_trace_id(self._run.get_span_context().trace_id)}

    def _batch(self, event: BatchCommitted) -> None:
        now = time.time_ns()
        begin = now - int(event.seconds * 1e9)
        span = self._batch_span(begin if self._boundary is None or not self._retries else self._boundary)
        deleted = {f"deleted_{table.name}": n for table, n in event.deleted.items()}
        span.set_attributes(_attributes(run_id=event.run_id, batch_index=event.index, **deleted))
        span.end(now)
        self._boundary = now

    def _batch_span(self, begin: int) -> Span:
        parent = set_span_in_context(self._run) if self._run else None
        span = self._tracer.start_span("activity-retention batch", parent, start_time=begin)
        self._move_retries(span)
        return span

    def _move_retries(self, span: Span) -> None:
        for moment, retry in self._retries:
            attributes = _attributes(
                reason=retry.reason, attempt=retry.attempt, error=retry.message, sqlstate=retry.sqlstate
            )
            span.add_event("retry", attributes, moment)
        self._retries = []

    def _end(self, run: Span, result: RunResult) -> None:
        failure = result.failure
        if failure and self._boundary is not None and result.outcome == "failed":
            batch = self._batch_span(self._boundary)
            batch.set_attributes(_attributes(run_id=str(result.run_id), batch_ids_count=len(failure.batch_ids)))
            _record(batch, failure)
            batch.end()
        self._move_retries(run)
        run.set_attributes(
            _attributes(
                outcome=result.outcome,
                stop_reason=result.stop_reason,
                has_more=result.has_more,
                batches_processed=result.batches_processed,
                retries=result.retries,
                **{f"deleted_{table.name}": n for table, n in result.deleted.items()},
            )
        )
        if failure:
            _record(run, failure)
        run.end()
        self._run = None


def otlp_provider(warn: Callable[[str], None]) -> TracerProvider:
    """A provider for the endpoint, headers and resource that the OTEL_* variables name; trouble with the collector
    is told to `warn`, once."""
    _tell_once(warn)
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "activity-retention"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_SECONDS)))
    return provider


def _tell_once(warn: Callable[[str], None]) -> None:
    class First(Handler):
        told = False

        def emit(self, record: LogRecord) -> None:
            if not self.told:
                self.told = True
                warn(f"spans cannot be delivered: {record.getMessage().splitlines()[0]}")

    _sdk_logger.handlers = [First(ERROR)]
    _sdk_logger.propagate = False


def _record(span: Span, failure: Failure) -> None:
    span.add_event(
        "exception",
        {
            "exception.type": failure.kind,
            "exception.message": failure.message,
            **_attributes(sqlstate=failure.sqlstate),
        },
    )
    span.set_status(Status(StatusCode.ERROR, failure.message))


def _attributes(**values: Any) -> dict[str, Any]:
    return {_PREFIX + name: value for name, value in values.items() if value is not None}
