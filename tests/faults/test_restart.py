"""The server goes, or somebody on it ends the job (case D6)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activity_retention.events import BatchCommitted, Event, Retrying
from activity_retention.sandbox.server import PrivateServer, private_server
from tests.conftest import cloned, make_template
from tests.database import Database
from tests.eventually import eventually


@pytest.fixture(scope="module")
def own_server(binaries: Path | None) -> Iterator[PrivateServer]:
    with private_server(binaries) as server:
        make_template(server)
        yield server


@pytest.fixture
def own_database(own_server: PrivateServer) -> Iterator[Database]:
    with cloned(own_server) as database:
        yield database


def test_a_restart_in_the_middle_of_a_batch_costs_a_retry(own_database: Database) -> None:
    """case D6"""
    sessions = [own_database.session(views=1, events=1) for _ in range(8)]
    events: list[Event] = []
    with ThreadPoolExecutor() as pool, own_database.gate("sessions", sessions[4]) as gate:
        run = pool.submit(own_database.run, watch=events.append, batch_size="2", lock_timeout="60s")
        eventually(gate.waiting)
        own_database.server.restart("fast")

        result = run.result()

    assert (result.outcome, result.stop_reason, result.failure) == ("completed", "empty", None)
    assert (result.rows, result.batches_processed) == (24, 4)
    assert result.retries >= 1
    assert [event.index for event in events if isinstance(event, BatchCommitted)] == [1, 2, 3, 4]
    assert own_database.counts() == (0, 0, 0)
    assert own_database.lock_is_free()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_between_two_batches_costs_a_retry(own_database: Database, mode: str) -> None:
    """case D6; an immediate stop sends no farewell, and the server recovers its log."""
    for _ in range(6):
        own_database.session(views=1, events=1)

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 2:
            own_database.server.restart("fast" if mode == "fast" else "immediate")

    result = own_database.run(watch=watch, batch_size="2")

    assert (result.outcome, result.rows, result.batches_processed) == ("completed", 18, 3)
    assert result.retries >= 1
    assert own_database.counts() == (0, 0, 0)


def test_a_server_that_stays_away_ends_the_run_after_a_bounded_number_of_tries(own_database: Database) -> None:
    """case D6: the first error is reported, batches 1 and 2 are kept."""
    for _ in range(6):
        own_database.session()
    events: list[Event] = []

    def watch(event: Event) -> None:
        events.append(event)
        if isinstance(event, BatchCommitted) and event.index == 2:
            own_database.server.stop("fast")

    result = own_database.run(watch=watch, wait=lambda _: False, batch_size="2", batch_retries="2")
    own_database.server.start()

    assert (result.outcome, result.has_more, result.batches_processed, result.rows) == ("failed", True, 2, 4)
    assert result.failure is not None
    assert result.failure.kind == "transient"
    assert len([event for event in events if isinstance(event, Retrying)]) == result.retries == 2
    assert own_database.count("sessions") == 2


def test_a_server_that_is_away_from_the_start_fails_the_run(own_database: Database) -> None:
    """case D6: a database that cannot be reached is worth a retry, not a refusal."""
    own_database.server.stop("fast")

    result = own_database.run(wait=lambda _: False, batch_retries="2")
    own_database.server.start()

    assert (result.outcome, result.retries, result.cutoff) == ("failed", 2, None)
    assert result.failure is not None
    assert result.failure.kind == "transient"


@pytest.mark.parametrize("word", ["pg_terminate_backend", "pg_cancel_backend"])
def test_an_administrators_word_is_not_overruled(database: Database, word: str) -> None:
    """case D6: without a restart it was a person, and no retry comes before the next tick."""
    sessions = [database.session(views=1, events=1) for _ in range(6)]
    with ThreadPoolExecutor() as pool, database.gate("sessions", sessions[2]) as gate:
        run = pool.submit(database.run, batch_size="2", lock_timeout="60s")
        eventually(gate.waiting)
        (pid,) = database.job_pids()
        database.execute(f"SELECT {word}(%s)", [pid])

        result = run.result()

    assert (result.outcome, result.has_more, result.batches_processed) == ("failed", True, 1)
    assert result.failure is not None
    assert result.failure.kind == "terminated"
    assert result.failure.sqlstate == {"pg_terminate_backend": "57P01", "pg_cancel_backend": "57014"}[word]
    assert database.counts() == (4, 4, 4)
    eventually(database.lock_is_free)
