"""A standby: it may be looked at and never written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from activity_retention.cli.connection import looking
from activity_retention.plan import read_plan
from activity_retention.sandbox.server import private_server
from tests.conftest import TEMPLATE, make_template
from tests.database import Database


@pytest.fixture
def standby(binaries: Path | None) -> Iterator[Database]:
    """A server that waits for a primary which never comes, with two expired sessions in it."""
    with private_server(binaries) as server:
        make_template(server)
        database = Database(server, TEMPLATE)
        database.expired(2)
        server.stop()
        (server.data_directory / "standby.signal").touch()
        server.start()
        yield database


def test_a_run_on_a_standby_is_refused_and_told_where_to_go(standby: Database) -> None:
    result = standby.run()

    assert result.outcome == "refused"
    assert result.failure is not None
    assert "connect to the primary" in result.failure.message


def test_a_plan_on_a_standby_counts_as_on_the_primary(standby: Database) -> None:
    settings = standby.settings()

    with looking(settings, "plan") as connection:
        plan = read_plan(connection, settings.job)

    assert (plan.survey.backlog.count, plan.batches) == (2, 1)
