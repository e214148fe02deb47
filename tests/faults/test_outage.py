"""The database is down when the daemon starts, comes up, goes for a while and comes again."""

from pathlib import Path

from activity_retention.sandbox.server import private_server
from tests.conftest import cloned, make_template
from tests.daemon import serving
from tests.eventually import eventually


def test_the_daemon_outlives_its_database(binaries: Path | None) -> None:
    """Not ready while it is down, alive all the time, at work as soon as it is up."""
    with private_server(binaries) as server:
        make_template(server)
        with cloned(server) as database:
            database.session(views=1)
            url = database.url()
            server.stop()
            schedule = ("--retention-schedule", "* * * * * *", "--batch-retries", "0", "--run-retries", "0")
            with serving(url, *schedule) as daemon:
                assert "cannot be reached" in daemon.wait_for("not ready")["reason"]
                daemon.wait_for("run failed", 2)
                assert (daemon.get("/readyz")[0], daemon.get("/livez")[0]) == (503, 200)

                server.start()
                daemon.wait_for("run completed")
                eventually(lambda: daemon.get("/readyz") == (200, "ok\n"))
                assert database.counts() == (0, 0, 0)

                failed = len(daemon.logged("run failed"))
                server.stop("immediate")
                daemon.wait_for("run failed", failed + 1)
                server.start()
                daemon.wait_for("run completed", len(daemon.logged("run completed")) + 1)
                assert daemon.stop() == 0
