"""The dashboard, and what its panels show: its queries, sent as Grafana would."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from tests.prometheus import Labels, Prometheus

FILE = Path(__file__).parents[1] / "ops/grafana/pin-user-activity.json"

# Some of the lengths to which Grafana rounds the time between two points, in seconds.
_STEPS = (1, 60, 600, 3600, 86_400)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return board


def panels() -> list[dict[str, Any]]:
    """All but the rows, which only part them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


@dataclass(frozen=True)
class Query:
    """One query of a panel. Bars are so many `points`, and those of a counter add up."""

    panel: str
    expression: str
    legend: str
    instant: bool
    points: int | None
    least_step: int
    adds_up: bool

    @property
    def name(self) -> str:
        return f"{self.panel}: {self.legend}"

    @property
    def span(self) -> int:
        """Seconds that the picture covers: a month for bars, and just now for the rest."""
        return 30 * 86_400 if self.points else 300

    def step(self, span: int) -> int:
        """Seconds from one point to the next."""
        wanted = span / (self.points or 1000)
        return max(self.least_step, *(step for step in _STEPS if step <= max(wanted, 1)))

    def filled_in(self, span: int, scrape: int = 1) -> str:
        """What Prometheus gets to see; it is scraped every `scrape` seconds."""
        step = self.step(span)
        variables = {
            "$__rate_interval": f"{max(step + scrape, 4 * scrape)}s",
            "$__interval": f"{step}s",
            "$policy": "user-activity",
        }
        expression = self.expression
        for name, value in variables.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        return expression


def queries() -> Iterator[Query]:
    for panel in panels():
        least = panel.get("interval", "1s")
        adds_up = panel["type"] == "heatmap" or panel["options"].get("legend", {}).get("calcs") == ["sum"]
        for target in panel.get("targets", []):
            yield Query(
                panel["title"],
                target["expr"],
                target["legendFormat"],
                target["instant"],
                panel.get("maxDataPoints"),
                int(least[:-1]) * _SECONDS[least[-1]],
                adds_up,
            )


def shown(server: Prometheus, query: Query, span: int | None = None) -> dict[str, float]:
    """The number for each name in the legend: the latest one, or what all of them add up to."""
    numbers: dict[str, float] = {}
    for labels, values in _answer(server, query, span or query.span):
        name = query.legend
        for label, value in labels.items():
            name = name.replace(f"{{{{{label}}}}}", value)
        assert name not in numbers
        numbers[name] = sum(values) if query.adds_up else values[-1]
    return numbers


def _answer(server: Prometheus, query: Query, span: int) -> list[tuple[Labels, list[float]]]:
    expression, step, now = query.filled_in(span), query.step(span), time()
    if query.instant:
        return [(labels, [value]) for labels, value in server.query(expression)]
    # Grafana takes both ends down to a multiple of the step.
    series = server.query_range(expression, start=(now - span) // step * step, end=now // step * step, step=step)
    return [(labels, [value for _, value in points]) for labels, points in series]
