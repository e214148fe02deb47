"""Runs in processes of their own, which can be killed."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PROGRAM = """
import json, sys
from activity_retention import ActivityRetentionJob, load_settings

settings = load_settings(json.loads(sys.argv[1]), environ={}).settings
result = ActivityRetentionJob(settings, watch=lambda _: None).run()
print(json.dumps(result.to_json()))
"""
# Stays between two batches until the end of stdin.
PAUSING_PROGRAM = PROGRAM.replace(
    ".run()", ".run(wait=lambda _: print('pausing', flush=True) or not sys.stdin.read())"
)


@contextmanager
def started(
    database_url: str, *, program: str = PROGRAM, prefix: Sequence[str] = (), **overrides: str
) -> Iterator["subprocess.Popen[str]"]:
    """A process that does one run and prints the result; killed when the block ends, if not before."""
    settings = json.dumps({"database_url": database_url, **overrides})
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", program, settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def result_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What the run said, once it is over; the process must not have been asked before."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    result: dict[str, Any] = json.loads(said)
    return result
