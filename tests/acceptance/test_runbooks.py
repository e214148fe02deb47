"""R-OBS-6: runbooks that are whole, lead somewhere, and have no command that no test types."""

import re
from pathlib import Path

import pytest
import yaml

from tests.acceptance.runbook import NAMES, read_page
from tests.prometheus import RULES_FILE


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_typed_by_a_test(name: str) -> None:
    test = Path(__file__).with_name(f"test_runbook_{name}.py").read_text(encoding="utf-8")

    typed = set(re.findall(r'\.follow\("([^"]+)"', test))

    assert typed == {section.title for section in read_page(name).sections if section.commands}


@pytest.mark.parametrize("name", NAMES)
def test_every_block_says_what_it_is_for(name: str) -> None:
    page = read_page(name)

    found = [block for section in page.sections for block in section.blocks]

    assert {block.language for block in found} <= {"sh", "sql", "text"}
    assert 2 * len(found) == len(re.findall(r"^\s*```", page.text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_leads_from_the_symptom_to_the_proof(name: str) -> None:
    titles = [section.title for section in read_page(name).sections]

    assert titles[:4] == ["Symptom", "What it means", "Look", "Decide"]
    assert titles[-1] == "Proof"


@pytest.mark.parametrize("name", NAMES)
def test_references_within_a_runbook_lead_somewhere(name: str) -> None:
    page = read_page(name)

    anchors = {
        re.sub(r"[^\w -]", "", section.title).lower().replace(" ", "-"): section.title for section in page.sections
    }

    assert set(re.findall(r"\]\(#([^)]+)\)", page.text)) <= set(anchors)


def test_every_alert_is_a_symptom_in_the_runbook_that_it_names() -> None:
    """R-OBS-4, R-OBS-6"""
    rules = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
    named = {
        (Path(rule["annotations"]["runbook"]).name, rule["alert"])
        for group in rules["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }

    symptoms = {
        (f"activity-retention-{name}.md", alert)
        for name in NAMES
        for alert in re.findall(r"^- Alert `(\w+)`", read_page(name).text, re.MULTILINE)
    }

    assert symptoms == named
