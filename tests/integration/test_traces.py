"""What the spans of a run tell a collector (R-OBS-3)."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest
import structlog
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from structlog.testing import LogCapture

from activity_retention.config import load_settings, traces_wanted
from activity_retention.events import Event, Retrying
from activity_retention.job import ActivityRetentionJob
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.result import RunResult
from activity_retention.telemetry import Telemetry
from tests.database import Database
from tests.listeners import answering
from tests.otlp import BATCH, RUN, Collector, collecting, ours, values

Environment = Callable[..., None]
Lines = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Sets OTEL_* variables; the tester's own are gone, and the SDK's logger is left as it was."""
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)

    def set_variables(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_{name}", value)

    logger = logging.getLogger("opentelemetry")
    handlers, propagate = logger.handlers, logger.propagate
    yield set_variables
    logger.handlers, logger.propagate = handlers, propagate


@pytest.fixture
def collector(environment: Environment) -> Iterator[Collector]:
    with collecting() as collector:
        environment(EXPORTER_OTLP_ENDPOINT=collector.url)
        yield collector


def run(
    database: Database,
    wait: Callable[[float], bool] | None = None,
    watch: Callable[[Event], None] = lambda _: None,
    **overrides: object,
) -> tuple[RunResult, Lines]:
    """A run as the command does it, and its log lines."""
    capture = LogCapture()
    logger = structlog.wrap_logger(None, processors=[capture])
    settings = load_settings(overrides, environ={"ACTIVITY_RETENTION_DATABASE_URL": database.url()}).settings
    telemetry = Telemetry(settings, logger, traced=traces_wanted(), others=[watch])
    result = ActivityRetentionJob(settings, watch=telemetry.watch).run(wait=wait or Flag().wait)
    telemetry.close()
    return result, capture.entries


def only(collector: Collector, name: str) -> Span:
    (span,) = collector.spans(name)
    return span


def retries(span: Span) -> list[dict[str, object]]:
    events = [event for event in span.events if event.name == "retry"]
    assert all(span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano for event in events)
    return [values(event.attributes) for event in events]


def reasons(span: Span) -> list[object]:
    return [retry["activity_retention.reason"] for retry in retries(span)]


def test_a_run_is_a_span_with_a_span_a_batch(database: Database, collector: Collector) -> None:
    for _ in range(5):
        database.session(views=1, events=2)

    result, _ = run(database, batch_size="2")

    span, batches = only(collector, RUN), collector.spans(BATCH)
    assert ours(span) == {
        "run_id": str(result.run_id),
        "policy": "user-activity",
        "cutoff": result.cutoff,
        "batch_size": 2,
        "eligible_backlog": 5,
        "outcome": "completed",
        "stop_reason": "empty",
        "has_more": False,
        "batches_processed": 3,
        "retries": 0,
        "deleted_sessions": 5,
        "deleted_property_object_views": 5,
        "deleted_action_events": 10,
    }
    assert (span.parent_span_id, span.status.code) == (b"", Status.STATUS_CODE_UNSET)
    assert [ours(batch) for batch in batches] == [
        {
            "run_id": str(result.run_id),
            "batch_index": index,
            "deleted_sessions": sessions,
            "deleted_property_object_views": sessions,
            "deleted_action_events": 2 * sessions,
        }
        for index, sessions in ((1, 2), (2, 2), (3, 1))
    ]
    assert {(batch.parent_span_id, batch.trace_id) for batch in batches} == {(span.span_id, span.trace_id)}
    edges = [moment for each in batches for moment in (each.start_time_unix_nano, each.end_time_unix_nano)]
    assert sorted([*edges, span.start_time_unix_nano, span.end_time_unix_nano])[1:-1] == edges


def test_retries_are_events_of_the_batch_that_they_delayed(database: Database, collector: Collector) -> None:
    database.expired(3)
    database.execute("CREATE SEQUENCE public.attempts")
    database.before(
        "DELETE",
        "sessions",
        "IF nextval('public.attempts') = 2 THEN RAISE EXCEPTION 'once' USING ERRCODE = '40001'; END IF",
    )

    _, lines = run(database, wait=lambda _: False, batch_size="1")

    first, second, third = collector.spans(BATCH)
    assert (reasons(first), reasons(second), reasons(third)) == ([], ["conflict"], [])
    (retry,) = retries(second)
    assert str(retry.pop("activity_retention.error")).startswith("once")
    assert retry == {
        "activity_retention.reason": "conflict",
        "activity_retention.attempt": 1,
        "activity_retention.sqlstate": "40001",
    }
    assert second.start_time_unix_nano == first.end_time_unix_nano
    span = only(collector, RUN)
    assert (reasons(span), ours(span)["retries"], span.status.code) == ([], 1, Status.STATUS_CODE_UNSET)
    assert {line.get("trace_id") for line in lines} == {span.trace_id.hex()}
    assert "retrying" in [line["event"] for line in lines]


def test_retries_before_the_first_batch_are_events_of_the_run(
    database: Database, collector: Collector, tmp_path: Path
) -> None:
    database.expired(1)
    url = tmp_path / "url"
    url.write_text("postgresql://postgres@127.0.0.1:1/nowhere")

    def come_back(event: Event) -> None:
        if isinstance(event, Retrying):
            url.write_text(database.url())

    run(database, lambda _: False, come_back, database_url_file=str(url))

    assert reasons(only(collector, RUN)) == ["connection"]
    assert reasons(only(collector, BATCH)) == []


def test_retries_that_led_to_no_batch_are_events_of_the_run(database: Database, collector: Collector) -> None:
    database.session(views=1)
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.property_object_views FOR UPDATE")

    result, _ = run(database, lambda _: False, lock_timeout="50ms", batch_size="1")
    holder.rollback()

    assert (result.left_locked, collector.spans(BATCH)) == (True, [])
    assert reasons(only(collector, RUN)) == ["locked", "left_locked"]


def test_a_failed_run_and_its_batch_record_the_error_and_no_ids(database: Database, collector: Collector) -> None:
    """R-OBS-3, R-ALG-8."""
    database.expired(2)
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes SELECT id FROM user_activity.sessions")
    people = database.execute(
        "SELECT id FROM user_activity.sessions UNION SELECT anonymous_id FROM user_activity.sessions"
    )

    result, _ = run(database)

    assert result.failure is not None
    for span in (only(collector, RUN), only(collector, BATCH)):
        assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, result.failure.message)
        (error,) = [event for event in span.events if event.name == "exception"]
        assert values(error.attributes) == {
            "exception.type": "poison",
            "exception.message": result.failure.message,
            "activity_retention.sqlstate": result.failure.sqlstate,
        }
    assert ours(only(collector, RUN))["outcome"] == "failed"
    assert reasons(only(collector, BATCH)) == ["late_child", "poison"]
    assert ours(only(collector, BATCH))["batch_ids_count"] == 2
    sent = b"".join(request.SerializeToString() for request in collector.requests)
    assert [str(one).encode() in sent for (one,) in people] == [False] * 4


def test_a_refused_run_is_an_error_without_a_batch(database: Database, collector: Collector) -> None:
    database.execute("DROP TABLE user_activity.action_events CASCADE")

    result, lines = run(database)

    span = only(collector, RUN)
    assert (result.outcome, ours(span)["outcome"]) == ("refused", "refused")
    assert (span.status.code, collector.spans(BATCH)) == (Status.STATUS_CODE_ERROR, [])
    assert {(line["run_id"], line["trace_id"]) for line in lines} == {(str(result.run_id), span.trace_id.hex())}


def test_a_skipped_run_is_no_error(database: Database, collector: Collector) -> None:
    database.connect().execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])

    run(database)

    span = only(collector, RUN)
    assert (ours(span)["outcome"], span.status.code) == ("skipped", Status.STATUS_CODE_UNSET)
    assert "has_more" not in ours(span)


def test_the_sender_is_called_as_the_variables_say(
    database: Database, collector: Collector, environment: Environment
) -> None:
    environment(
        EXPORTER_OTLP_ENDPOINT=f"{collector.url}/behind/a/path/",
        SERVICE_NAME="nightly",
        RESOURCE_ATTRIBUTES="deployment.environment=production,service.name=overruled",
        EXPORTER_OTLP_HEADERS="x-scope=retention,authorization=Bearer%20token",
    )

    run(database)

    sender = collector.resource()
    assert (sender["service.name"], sender["deployment.environment"]) == ("nightly", "production")
    assert collector.paths == ["/behind/a/path/v1/traces"]
    (headers,) = ({key.lower(): value for key, value in one.items()} for one in collector.headers)
    assert (headers["x-scope"], headers["authorization"]) == ("retention", "Bearer token")


@pytest.mark.parametrize(
    ("attributes", "name"),
    [("", "activity-retention"), ("team=data", "activity-retention"), ("service.name=nightly", "nightly")],
)
def test_without_a_name_it_is_the_programs(
    database: Database, collector: Collector, environment: Environment, attributes: str, name: str
) -> None:
    environment(RESOURCE_ATTRIBUTES=attributes)
    run(database)
    assert collector.resource()["service.name"] == name


def test_an_endpoint_of_traces_alone_is_taken_as_it_is(
    database: Database, collector: Collector, environment: Environment
) -> None:
    environment(EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/custom")
    run(database)
    assert collector.paths == ["/custom"]


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda: answering(b"no HTTP at all\r\n\r\n"), id="nonsense"),
        pytest.param(lambda: collecting(status=503), id="unavailable"),
        pytest.param(lambda: collecting(status=400), id="refusing"),
    ],
)
def test_a_collector_in_trouble_costs_one_sentence(
    database: Database, environment: Environment, trouble: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Case F13."""
    database.expired(2)

    with trouble() as server:
        environment(EXPORTER_OTLP_ENDPOINT=getattr(server, "url", server))
        result, lines = run(database)

    assert (result.outcome, result.rows) == ("completed", 2)
    (sentence,) = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert sentence.startswith("spans cannot be delivered: ")


@pytest.mark.parametrize("variables", [{"BSP_SCHEDULE_DELAY": "0"}, {"BSP_MAX_QUEUE_SIZE": "1"}], ids=str)
def test_variables_that_cannot_be_used_stop_no_run(
    database: Database, collector: Collector, environment: Environment, variables: Mapping[str, str]
) -> None:
    database.expired(2)
    environment(**variables)

    result, lines = run(database)

    assert (result.outcome, result.rows, collector.requests) == ("completed", 2, [])
    (sentence,) = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert sentence.startswith("the OTEL_* variables cannot be used, no spans are sent: ")
