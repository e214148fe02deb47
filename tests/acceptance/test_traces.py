"""Spans of the installed command reach a collector, and trouble with one costs a run nothing (case F13)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import Command, Completed
from tests.database import Database
from tests.listeners import hanging, nobody
from tests.otlp import BATCH, RUN, collecting, ours

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def run(database: Database, command: Command, env: Mapping[str, str], *arguments: str) -> Completed:
    return command("run", "--yes", "--json", "--database-url", database.url(), *arguments, env=env)


def lines(done: Completed) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stderr.splitlines()]


def warnings(done: Completed) -> list[str]:
    return [line["event"] for line in lines(done) if line["level"] == "warning"]


def unharmed(database: Database, done: Completed) -> bool:
    result = json.loads(done.stdout)
    return (result["outcome"], result["deletedSessions"], database.count("sessions")) == ("completed", 3, 0)


def test_a_process_that_lives_shorter_than_its_exporters_interval_still_delivers(
    database: Database, command: Command
) -> None:
    """Case F13, R-OBS-3: with the RunId of the result, and the trace in every log line."""
    database.expired(3)
    variables = {"OTEL_BSP_SCHEDULE_DELAY": "600000", "OTEL_SERVICE_NAME": "nightly"}

    with collecting() as collector:
        env = {ENDPOINT: collector.url, **variables}
        done = run(database, command, env, "--batch-size", "2", "--log-level", "debug")

    result = json.loads(done.stdout)
    (span,), batches = collector.spans(RUN), collector.spans(BATCH)
    assert unharmed(database, done)
    assert collector.paths == ["/v1/traces"]
    assert collector.resource()["service.name"] == "nightly"
    assert (ours(span)["run_id"], ours(span)["deleted_sessions"]) == (result["runId"], 3)
    assert [ours(batch)["deleted_sessions"] for batch in batches] == [2, 1]
    assert {(line["run_id"], line["trace_id"]) for line in lines(done)} == {(result["runId"], span.trace_id.hex())}
    assert [line["event"] for line in lines(done)] == [
        "run started",
        "batch committed",
        "batch committed",
        "run completed",
    ]


def test_a_collector_that_hangs_is_not_waited_for(database: Database, command: Command) -> None:
    """Case F13: the command is over while the collector still keeps its request."""
    database.expired(3)

    with hanging() as collector:
        done = run(database, command, {ENDPOINT: collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "3600"})
        assert collector.held

    assert unharmed(database, done)
    assert warnings(done) == ["spans cannot be delivered: the collector did not answer within 2 s"]


def test_a_collector_that_is_down_costs_one_sentence(database: Database, command: Command) -> None:
    """Case F13."""
    database.expired(3)

    done = run(database, command, {ENDPOINT: nobody()})

    assert unharmed(database, done)
    (sentence,) = warnings(done)
    assert sentence.startswith("spans cannot be delivered: ")


def test_without_the_extra_one_sentence_says_so(database: Database, command: Command, tmp_path: Path) -> None:
    database.expired(3)
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not installed')\n")

    done = run(database, command, {ENDPOINT: nobody(), "PYTHONPATH": str(tmp_path)})

    assert unharmed(database, done)
    assert warnings(done) == [
        "the OTEL_* variables ask for traces, but the extra otel is not installed: "
        "pip install 'activity-retention[otel]'"
    ]


def test_nothing_is_sent_where_traces_are_switched_off(database: Database, command: Command) -> None:
    database.expired(3)

    with collecting() as collector:
        done = run(database, command, {ENDPOINT: collector.url, "OTEL_SDK_DISABLED": "true"})

    assert unharmed(database, done)
    assert collector.requests == []
    assert not any("trace_id" in line for line in lines(done))
