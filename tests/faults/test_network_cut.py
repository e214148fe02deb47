"""A network that is cut between the job and the server (cases C17b, D8)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from activity_retention.sandbox.server import PrivateServer, private_server
from tests.conftest import cloned, make_template
from tests.database import Database
from tests.eventually import eventually
from tests.faults.process import PAUSING_PROGRAM, result_of, started

# From the range that RFC 2544 sets apart for tests; another one for each process of tests.
SERVER, CLIENT = (f"198.18.{os.getpid() % 256}.{host}" for host in (1, 2))
# The keepalives' 10 + 3 * 5 seconds, and some patience.
BOUND = 10 + 3 * 5 + 15


def ip(command: str) -> bool:
    return subprocess.run(["ip", *command.split()], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace whose only line leads to this host."""
    name = f"retention{os.getpid()}"
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("ss") or not ip(f"netns add {name}"):
        pytest.skip("no network namespace can be made: it takes root, ip and ss")
    try:
        line = f"ar{os.getpid()}"
        for command in (
            f"link add {line} type veth peer name client netns {name}",
            f"address add {SERVER}/30 dev {line}",
            f"link set {line} up",
            f"-n {name} address add {CLIENT}/30 dev client",
            f"-n {name} link set client up",
        ):
            if not ip(command):
                pytest.skip(f"no line into a network namespace can be made: ip {command}")
        yield name
    finally:
        ip(f"netns delete {name}")


@pytest.fixture
def far_server(binaries: Path | None, namespace: str) -> Iterator[PrivateServer]:
    """A server that listens to the namespace as well."""
    with private_server(binaries, {"listen_addresses": f"127.0.0.1,{SERVER}"}) as server:
        with (server.data_directory / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {CLIENT}/32 trust\n")
        server.restart()
        make_template(server)
        yield server


def test_the_locks_of_jobs_that_were_cut_off_are_free_within_the_documented_bound(
    far_server: PrivateServer, namespace: str
) -> None:
    """case C17b, D8: one job's line is quiet, the other's batch has an answer that never arrives."""
    prefix = ("ip", "netns", "exec", namespace)
    with cloned(far_server) as quiet, cloned(far_server) as busy:
        for database in (quiet, busy):
            database.session(views=1, events=1)
        with (
            busy.gate("sessions") as gate,
            started(far_url(quiet), program=PAUSING_PROGRAM, prefix=prefix) as pausing,
            started(far_url(busy), prefix=prefix, lock_timeout="60s", batch_retries="0") as working,
        ):
            eventually(gate.waiting)
            assert pausing.stdout is not None
            assert pausing.stdout.readline() == "pausing\n"
            eventually(nothing_in_flight)
            assert ip(f"-n {namespace} address flush dev client")
            pausing.kill()
            gate.open()

            assert not quiet.lock_is_free()
            assert not busy.lock_is_free()
            eventually(quiet.lock_is_free, BOUND)
            eventually(busy.lock_is_free, BOUND)
            assert result_of(working)["failure"]["kind"] == "transient"

        assert busy.counts() == (1, 1, 1)
        assert [database.run().rows for database in (quiet, busy)] == [3, 3]


def far_url(database: Database) -> str:
    return f"postgresql://postgres@{SERVER}:{database.server.port}/{database.name}"


def nothing_in_flight() -> bool:
    """Keepalives begin once the last answer was acknowledged; until then the server repeats it."""
    lines = subprocess.run(
        ["ss", "-tnH", "dst", CLIENT], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return all(line.split()[2] == "0" for line in lines)
