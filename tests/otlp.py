"""A collector of spans: OTLP over HTTP, as protobuf."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.listeners import listening

RUN, BATCH = "activity-retention run", "activity-retention batch"


@dataclass
class Collector:
    """What has arrived, and where."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    def spans(self, name: str) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.name == name
        ]

    def resource(self) -> dict[str, object]:
        """The attributes of the sender, the same in every request."""
        (first, *others) = (
            values(spans.resource.attributes) for one in self.requests for spans in one.resource_spans
        )
        assert all(other == first for other in others)
        return first


def values(attributes: Iterable[KeyValue]) -> dict[str, object]:
    """Attributes as plain values."""
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}


def ours(span: Span) -> dict[str, object]:
    """The attributes of a span, without the prefix that all of them must have."""
    found = values(span.attributes)
    assert all(key.startswith("activity_retention.") for key in found)
    return {key.removeprefix("activity_retention."): value for key, value in found.items()}


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector that answers with `status`."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            collector.paths.append(self.path)
            collector.headers.append(dict(self.headers))
            collector.requests.append(request)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with listening(Handler) as url:
        collector.url = url
        yield collector
