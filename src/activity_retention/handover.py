"""The series of a one-shot run, handed to a Pushgateway or a textfile."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from prometheus_client import CollectorRegistry, push_to_gateway, write_to_textfile
from prometheus_client.exposition import default_handler
from prometheus_client.metrics_core import Metric

from activity_retention.at_most import at_most
from activity_retention.carry_on import Key, carry_on, read_former
from activity_retention.gateway import read_gateway
from activity_retention.settings import Settings, shown

_SECONDS = 2.0
_JOB = "activity-retention"


def hand_over(registry: CollectorRegistry, settings: Settings) -> list[str]:
    """Hands the series to where the settings say, within two seconds in all; answers with what went wrong, since
    no trouble there fails a run."""
    places: list[tuple[str, object, Callable[[], None]]] = []
    if settings.textfile is not None:
        places.append(("textfile", settings.textfile, partial(_write, registry, settings.textfile)))
    if settings.pushgateway_url is not None:
        url = settings.pushgateway_url.get_secret_value()
        places.append(("pushgateway_url", url, partial(_push, registry, url, settings.job.policy)))
    return [
        f"{key} = {shown(key, place)!r}: the metrics of this run were not delivered: {trouble}"
        for key, place, action in places
        if (trouble := _trouble(action, _SECONDS / len(places)))
    ]


def _trouble(action: Callable[[], None], seconds: float) -> str | None:
    said: list[str] = []

    def guarded() -> None:
        try:
            action()
        except HTTPError as error:
            said.append(f"it answered {error.code} {error.reason}")
        except URLError as error:
            said.append(getattr(error.reason, "strerror", None) or str(error.reason))
        except OSError as error:
            said.append(error.strerror or str(error))
        except (HTTPException, ValueError):
            said.append("what is there is not a text exposition, so it was left alone")

    in_time = at_most(seconds, guarded)
    return (said[0] if said else None) if in_time else f"no answer within {seconds:.0f} s"


def _write(registry: CollectorRegistry, path: Path) -> None:
    former = path.read_text(encoding="utf-8") if path.exists() else ""
    write_to_textfile(str(path), _counted_on(registry, read_former(former, {})))


def _push(registry: CollectorRegistry, url: str, policy: str) -> None:
    gateway = read_gateway(url)
    authorization: list[tuple[str, str]] = []
    if gateway.credentials is not None:
        authorization = [("Authorization", f"Basic {b64encode(gateway.credentials.encode()).decode()}")]

    def authorized(
        url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        return default_handler(url, method, timeout, [*headers, *authorization], data)

    with urlopen(Request(f"{gateway.address}/metrics", headers=dict(authorization))) as answer:  # noqa: S310
        former = read_former(answer.read().decode(), {"job": _JOB, "policy": policy})
    push_to_gateway(
        gateway.address,
        job=_JOB,
        registry=_counted_on(registry, former),
        grouping_key={"policy": policy},
        timeout=None,
        handler=authorized,
    )


def _counted_on(registry: CollectorRegistry, former: dict[Key, float]) -> CollectorRegistry:
    class CountedOn:
        def collect(self) -> Iterator[Metric]:
            return carry_on(registry.collect(), former)

    merged = CollectorRegistry()
    merged.register(CountedOn())
    return merged
