"""The alerts of ops/prometheus (R-OBS-4), as promtool sees them, and what a person is told by them."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from activity_retention.metrics import RunMetrics
from activity_retention.settings import JobSettings
from tests.prometheus import RULES_FILE

ROOT = Path(__file__).parents[2]
FOLDER = RULES_FILE.parent
RULES: list[dict[str, Any]] = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]
ALERTS = [rule for rule in RULES if "alert" in rule]
RUNBOOKS = [f"docs/runbooks/activity-retention-{name}.md" for name in ("backlog", "failure", "lock")]

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])

TWO_NAMESPACES = """
rule_files: [rules.yml]
evaluation_interval: 5m
tests:
  - interval: 5m
    input_series:
      - series: activity_retention_last_success_timestamp_seconds{policy="user-activity",namespace="production"}
        values: 0x35 10800x400
      - series: activity_retention_last_success_timestamp_seconds{policy="user-activity",namespace="staging"}
        values: 0x35 10800x287 97200x100
    promql_expr_test:
      - eval_time: 30h
        expr: sum by (namespace) (ALERTS)
        exp_samples: [{labels: '{namespace="production"}', value: 1}]
"""


def promtool(*arguments: object) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def exposed() -> set[str]:
    """The names of all series that a process can expose."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
    return {
        family.name + suffix
        for family in RunMetrics(JobSettings()).registry.collect()
        for suffix in suffixes[family.type]
    }


@needs_promtool
def test_promtool_accepts_the_rules_and_the_example_configuration() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES_FILE)
    promtool("check", "config", FOLDER / "prometheus.yml")


@needs_promtool
@pytest.mark.parametrize("tests", sorted(FOLDER.glob("*.test.yml")), ids=lambda path: path.name)
def test_every_alert_fires_when_it_has_to_and_not_otherwise(tests: Path) -> None:
    """R-OBS-4, case F14."""
    promtool("test", "rules", tests)


@needs_promtool
def test_one_prometheus_can_tell_several_databases_apart_by_another_label(tmp_path: Path) -> None:
    text = RULES_FILE.read_text(encoding="utf-8").replace("(policy)", "(namespace, policy)")
    (tmp_path / "rules.yml").write_text(text, encoding="utf-8")
    (tmp_path / "tests.yml").write_text(TWO_NAMESPACES, encoding="utf-8")

    promtool("test", "rules", tmp_path / "tests.yml")


@each_alert
def test_an_alert_says_what_it_means_in_one_sentence_and_names_its_runbook(alert: dict[str, Any]) -> None:
    """R-OBS-4, R-OBS-6."""
    annotations = alert["annotations"]

    assert alert["alert"].startswith("ActivityRetention")
    assert alert["labels"] == {"severity": "ticket"}
    assert re.fullmatch(r"[A-Z][^.]*(\$labels\.policy[^.]*)?\.", annotations["summary"])
    assert "Look first" in annotations["description"]
    assert annotations["runbook"] in RUNBOOKS
    assert (ROOT / annotations["runbook"]).is_file()


def test_every_runbook_has_an_alert() -> None:
    assert sorted({alert["annotations"]["runbook"] for alert in ALERTS}) == RUNBOOKS


def test_the_rules_name_no_series_that_nobody_exposes() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    named = {name for rule in RULES for name in re.findall(r"[\w:]*activity_retention_[\w:]+", rule["expr"])}

    assert named - recorded <= exposed()
    assert recorded <= named


@each_alert
def test_the_alerts_page_has_every_alert_as_it_is(alert: dict[str, Any]) -> None:
    page = (ROOT / "docs/reference/alerts.md").read_text(encoding="utf-8")
    row = next((line for line in page.splitlines() if line.startswith(f"| `{alert['alert']}` |")), "")

    assert f"| {alert['for']} |" in row
    assert f"(../{alert['annotations']['runbook'].removeprefix('docs/')})" in row
