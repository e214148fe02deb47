"""Several processes at once, and killed ones (cases B7, C17a, C19, F12)."""

from contextlib import ExitStack

from tests.database import Database
from tests.eventually import eventually
from tests.faults.process import result_of, started


def test_a_killed_process_leaves_no_session_without_its_children(database: Database) -> None:
    """case B7, F12: killed between the deletion of children and of their parents; earlier batches stay."""
    sessions = [database.session(views=2, events=3) for _ in range(6)]
    with database.gate("sessions", sessions[4]) as gate:
        with started(database.url(), batch_size="2", lock_timeout="60s") as process:
            eventually(gate.waiting)
            process.kill()
        eventually(database.lock_is_free)
        eventually(lambda: not database.job_pids())

    assert database.counts() == (2, 4, 6)
    result = database.run()
    assert (result.outcome, result.rows, database.counts()) == ("completed", 2 * 6, (0, 0, 0))


def test_the_lock_of_a_killed_process_is_free_long_before_its_statement_would_have_ended(
    database: Database,
) -> None:
    """case C17: (a) client_connection_check_interval notices."""
    database.session(views=1, events=1)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(600)")
    with started(database.url()) as process:
        eventually(database.is_sleeping)
        assert not database.lock_is_free()
        process.kill()
    eventually(database.lock_is_free)

    assert database.counts() == (1, 1, 1)


def test_of_five_processes_at_once_one_works_and_four_skip(database: Database) -> None:
    """case C19"""
    for _ in range(8):
        database.session(views=1, events=1)
    with ExitStack() as stack:
        gate = stack.enter_context(database.gate("sessions"))
        processes = [
            stack.enter_context(started(database.url(), batch_size="2", lock_timeout="60s")) for _ in range(5)
        ]
        eventually(lambda: [process.poll() for process in processes].count(0) == 4)
        gate.open()

        results = [result_of(process) for process in processes]

    assert sorted(result["outcome"] for result in results) == ["completed"] + ["skipped"] * 4
    assert sum(result["deletedSessions"] for result in results) == 8
    assert sum(sum(result["deleted"].values()) for result in results) == 24
    assert database.counts() == (0, 0, 0)
