"""Series that go on from one process to the next.

A process that lives for one run counts from 0 each time, and nobody who looks at increases would ever see one. So
what was exposed before is added to what this process has counted.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

Key = tuple[str, frozenset[tuple[str, str]]]

_PREFIX = "activity_retention_"
_LATEST = _PREFIX + "last_success_timestamp_seconds"
# What a Pushgateway adds to a series of ours.
_FOREIGN = ("job", "instance")


def read_former(exposition: str, group: Mapping[str, str]) -> dict[Key, float]:
    """Our series in a text exposition that carry all labels of `group`; raises ValueError where it is none."""
    ours = "\n".join(line for line in exposition.splitlines() if _PREFIX in line) + "\n"
    found = {}
    for family in text_string_to_metric_families(ours):
        for sample in family.samples:
            if group.items() <= sample.labels.items():
                labels = {name: value for name, value in sample.labels.items() if name not in _FOREIGN}
                if "le" in labels:
                    # A Pushgateway hands out 1 where it was given 1.0.
                    labels["le"] = floatToGoString(labels["le"])  # type: ignore[no-untyped-call]
                found[sample.name, frozenset(labels.items())] = sample.value
    return found


def carry_on(families: Iterable[Metric], former: Mapping[Key, float]) -> Iterator[Metric]:
    """`families`, with counters and histograms counted on from `former`, gauges that nobody has set this time as
    they were, and the last success as it was unless there is a newer one. A histogram whose buckets have changed
    starts anew."""
    for family in families:
        merged = Metric(family.name, family.documentation, family.type, family.unit)
        now = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in family.samples}
        if family.type == "counter" or (family.type == "histogram" and _buckets(now) <= former.keys()):
            now = {key: value + former.get(key, 0.0) for key, value in now.items()}
        elif family.name == _LATEST:
            now = {key: value or former.get(key, 0.0) for key, value in now.items()}
        elif family.type == "gauge" and not now:
            now = {key: value for key, value in former.items() if key[0] == family.name}
        for (name, labels), value in now.items():
            merged.add_sample(name, dict(labels), value)
        yield merged


def _buckets(samples: Iterable[Key]) -> set[Key]:
    return {key for key in samples if key[0].endswith("_bucket")}
