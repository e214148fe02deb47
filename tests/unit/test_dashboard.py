"""The dashboard as a file (R-OBS-5); tests/acceptance/test_dashboard_in_prometheus.py asks its queries."""

import re
import subprocess
import sys
from itertools import product
from typing import Any, get_args

import pytest

from activity_retention.metrics import RunMetrics
from activity_retention.result import Outcome
from activity_retention.settings import Settings
from tests import grafana

ROOT = grafana.FILE.parents[2]
PANELS = grafana.panels()
QUERIES = list(grafana.queries())
FROM_POSTGRES_EXPORTER = {"pg_stat_user_tables_n_dead_tup"}

each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
each_query = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)


def test_the_file_is_what_the_code_prints() -> None:
    code = grafana.FILE.with_name("pin_user_activity.py")

    printed = subprocess.run([sys.executable, code], capture_output=True, text=True, check=True).stdout

    assert printed == grafana.FILE.read_text(encoding="utf-8"), f"python {code.name} > {grafana.FILE.name}"


def test_it_is_called_as_specified() -> None:
    """R-OBS-5"""
    board = grafana.dashboard()

    assert (board["uid"], board["title"]) == ("pin-user-activity", "pin-user-activity")
    assert [panel["title"] for panel in board["panels"] if panel["type"] == "row"] == ["Retention"]
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "policy"]


@each_query
def test_every_series_is_one_that_is_exported(query: grafana.Query) -> None:
    exported = {
        sample.name for family in RunMetrics(Settings().job).registry.collect() for sample in family.samples
    } | {f"activity_retention_{name}" for name in ("eligible_backlog", "oldest_eligible_age_seconds", "has_more")}

    used = set(re.findall(r"\b(?:activity_retention|pg)_\w+", query.expression))

    assert used
    assert used <= exported | FROM_POSTGRES_EXPORTER


@each_query
def test_every_query_is_about_the_chosen_policy_and_names_what_it_keeps(query: grafana.Query) -> None:
    own = re.findall(r"activity_retention_\w+(\{[^}]*\})?", query.expression)

    assert set(own) == {'{policy="$policy"}'}
    for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
        assert f"by ({label})" in query.expression


@each_query
def test_no_query_invents_a_zero(query: grafana.Query) -> None:
    assert not re.search(r"vector|absent|scalar", query.expression)


@each_panel
def test_every_panel_tells_the_person_on_call_what_is_good_and_bad(panel: dict[str, Any]) -> None:
    if panel["type"] == "text":
        assert "docs/runbooks/" in panel["options"]["content"]
        return
    assert re.search(r"\. Good: .+ Bad: .+\.$", panel["description"])


@each_panel
def test_every_panel_has_a_unit_and_asks_the_chosen_prometheus(panel: dict[str, Any]) -> None:
    if panel["type"] == "text":
        return
    unit = panel["options"]["yAxis"] if panel["type"] == "heatmap" else panel["fieldConfig"]["defaults"]
    assert unit["unit"]
    for asked in (panel, *panel["targets"]):
        assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in grafana.dashboard()["panels"]:
        place = panel["gridPos"]
        cells = set(product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])))
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len(taken) == 24 * (1 + max(y for _, y in taken)), "a hole"


def test_every_outcome_has_a_colour_of_its_own() -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == "Outcome of the last 30 nights")
    colors = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
    }

    assert set(colors) == set(get_args(Outcome))
    assert len(set(colors.values())) == len(colors)


def test_the_pages_that_it_names_exist() -> None:
    """R-OBS-6"""
    named = set(re.findall(r"docs/[\w/-]+\.md", grafana.FILE.read_text(encoding="utf-8")))

    assert {f"docs/runbooks/activity-retention-{name}.md" for name in ("backlog", "failure", "lock")} <= named
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_the_page_about_it_has_every_panel() -> None:
    page = (ROOT / "docs/reference/dashboard.md").read_text(encoding="utf-8")

    assert [panel["title"] for panel in PANELS if panel["title"] not in page] == []
