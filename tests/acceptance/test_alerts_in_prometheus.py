"""The alerts, in a real Prometheus (R-OBS-4).

A day of the rules lasts three seconds here, and the schedule fires once in that time, as it does every night.
"""

import json
import re
from pathlib import Path

import yaml

from tests.daemon import serving
from tests.database import Database
from tests.eventually import eventually
from tests.prometheus import RULES_FILE, Prometheus, needs_prometheus, prometheus
from tests.watched import lock

DAY = 3
UNITS = {"d": DAY * 1000, "h": DAY * 1000 / 24, "m": DAY * 1000 / 1440}

pytestmark = needs_prometheus


def shortened(rules: Path, folder: Path) -> Path:
    """The same rules for days of three seconds."""
    groups = yaml.safe_load(rules.read_text("utf-8"))

    def shorter(text: str) -> str:
        text = re.sub(r"\b(\d+)([dhm])\b", lambda found: f"{int(found[1]) * UNITS[found[2]]:.0f}ms", text)
        return re.sub(r"\b3600\b", str(DAY / 24), text)

    for rule in groups["groups"][0]["rules"]:
        rule |= {key: shorter(rule[key]) for key in ("expr", "for", "keep_firing_for") if key in rule}
    (short := folder / "rules.json").write_text(json.dumps(groups), "utf-8")
    return short


def firing(server: Prometheus) -> set[str]:
    return {
        alert["labels"]["alertname"].removeprefix("ActivityRetention")
        for alert in server.alerts()
        if alert["state"] == "firing"
    }


def test_each_alert_fires_for_what_befalls_the_daemon_and_ends_with_it(database: Database, tmp_path: Path) -> None:
    """R-OBS-4: growing, lock, refused, hold; in between a night that is well ends them all."""
    hold = tmp_path / "hold"
    settings = (
        *("--retention-schedule", f"*/{DAY} * * * * *", "--hold-file", str(hold)),
        *("--batch-size", "10", "--max-run-duration", "1s"),
    )
    with (
        serving(database.url(), *settings) as daemon,
        prometheus(
            tmp_path,
            {"job": [daemon.wait_for("listening")["url"].removeprefix("http://")]},
            rules=shortened(RULES_FILE, tmp_path),
            scrape_interval="100ms",
            evaluation_interval="100ms",
        ) as server,
    ):

        def is_well() -> bool:
            return not firing(server)

        def more_expires() -> set[str]:
            database.expired(50)
            return firing(server)

        daemon.wait_for("run completed")
        eventually(is_well)

        database.before("DELETE", "sessions", "PERFORM pg_sleep(0.005)")
        eventually(lambda: more_expires() >= {"BacklogGrowing", "HasMore", "DurationNearLimit"})
        database.execute("DROP TRIGGER before_delete_of_sessions ON user_activity.sessions")
        eventually(is_well)

        holder = lock(database)
        eventually(lambda: firing(server) == {"LockContention", "Overdue"})
        holder.close()
        eventually(is_well)

        database.execute("ALTER TABLE user_activity.action_events RENAME TO elsewhere")
        eventually(lambda: firing(server) == {"ErrorRate", "Overdue"})
        database.execute("ALTER TABLE user_activity.elsewhere RENAME TO action_events")
        eventually(is_well)

        hold.write_text("restored last night", "utf-8")
        eventually(lambda: firing(server) == {"OnHold", "Overdue"})
        hold.unlink()
        eventually(is_well)

        assert {rule["health"] for rule in server.rules()} == {"ok"}
        assert daemon.stop() == 0


def test_where_nothing_is_scraped_prometheus_says_so(tmp_path: Path) -> None:
    """R-OBS-4: without the label of a policy the sentences still read."""
    with prometheus(tmp_path, {}, rules=RULES_FILE) as server:
        (alert,) = eventually(server.alerts)

    assert alert["labels"] == {"alertname": "ActivityRetentionOverdue", "severity": "ticket"}
    assert alert["annotations"]["summary"].startswith("No run of any policy is known to have completed")
    assert "is it scraped?" in alert["annotations"]["description"]
