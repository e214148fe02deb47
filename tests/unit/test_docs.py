"""The docs say what the code does."""

import re
import tomllib
from pathlib import Path

import pytest

from activity_retention import __version__
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.metrics import RunMetrics
from activity_retention.settings import JobSettings, Settings, allowed, fields, values

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def settings_table() -> str:
    """The table of docs/reference/settings.md as it has to be."""
    defaults = values(Settings())
    rows = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    for key, field in fields().items():
        default = defaults[key]
        shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        rows.append(f"| `{key}` | {shown} | {allowed(field)} | {field.description} |")
    return "\n".join(rows)


def metrics_table() -> str:
    """The table of docs/reference/metrics.md as it has to be."""
    rows = ["| metric | type | meaning |", "|---|---|---|"]
    for family in RunMetrics(JobSettings()).registry.collect():
        total = "_total" if family.type == "counter" else ""
        labels = sorted({name for sample in family.samples for name in sample.labels} - {"policy", "le"})
        shown = f"{family.name}{total}{{{', '.join(labels)}}}" if labels else f"{family.name}{total}"
        rows.append(f"| `{shown}` | {family.type} | {family.documentation} |")
    return "\n".join(rows)


def test_the_metrics_page_has_every_metric_as_it_is() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")

    assert metrics_table() in page, f"the table in docs/reference/metrics.md has to be:\n{metrics_table()}"


def test_the_settings_page_has_every_setting_as_it_is() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")

    assert settings_table() in page, f"the table in docs/reference/settings.md has to be:\n{settings_table()}"


def test_the_lock_page_has_the_key() -> None:
    page = (ROOT / "docs/reference/lock.md").read_text(encoding="utf-8")

    assert f"-- {lock_key(LOCK_NAME)}\n" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
