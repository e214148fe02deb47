"""A real Pushgateway."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

PUSHGATEWAY = shutil.which("prometheus-pushgateway") or shutil.which("pushgateway")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextmanager
def pushgateway(*arguments: str) -> Iterator[str]:
    """The host and port of one that ends with the block."""
    assert PUSHGATEWAY is not None
    # Debian's keeps what was pushed for the next one, unless told.
    command: Sequence[str] = [
        PUSHGATEWAY,
        "--web.listen-address=127.0.0.1:0",
        "--persistence.file=",
        *arguments,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield next(
                found[1]
                for line in process.stderr
                if (found := re.search(r"address=\"?(127\.0\.0\.1:[1-9]\d*)", line))
            )
        finally:
            process.terminate()


def pushed(address: str) -> Series:
    """Our series there, without the labels that say whose they are."""
    with urlopen(f"http://{address}/metrics") as answer:
        return series(answer.read().decode(), job="activity-retention", instance="")


def series(exposition: str, **labels: str) -> Series:
    """Our series in an exposition, those with these `labels`, and without them."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        for name, own, value, *_ in family.samples:
            if name.startswith("activity_retention_") and labels.items() <= own.items():
                # A Pushgateway writes bounds its own way.
                bound = {"le": str(float(own["le"]))} if "le" in own else {}
                found[
                    name.removeprefix("activity_retention_"), frozenset({**own, **bound}.items() - labels.items())
                ] = value
    return found
