"""What ops/ ships for deployment fits the schemas of Kubernetes, systemd and our own settings."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from prometheus_client import CollectorRegistry

from activity_retention import __version__
from activity_retention.cli.command import REFUSED
from activity_retention.config import CONFIG_VARIABLE, load_settings
from activity_retention.duration import parse_duration
from activity_retention.errors import Refused
from activity_retention.health import HealthServer
from activity_retention.settings import Settings

OPS = Path(__file__).parents[2] / "ops"
PROGRAM = Path(sys.executable).with_name("activity-retention")
# The schema of 1.28 demands of every rule of a podFailurePolicy what only some have.
VERSIONS = ("1.29", kubernetes_validate.latest_version())

MANIFESTS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (OPS / "kubernetes").glob("*.yaml")}
SERVE = MANIFESTS["deployment"]["spec"]
CRON = MANIFESTS["cronjob"]["spec"]
RUN = CRON["jobTemplate"]["spec"]
PODS = {"serve": SERVE["template"]["spec"], "run": RUN["template"]["spec"]}

UNITS = {
    path.name: [line.split("=", 1) for line in path.read_text("utf-8").splitlines() if "=" in line]
    for path in [*(OPS / "systemd").glob("*.service"), *(OPS / "systemd").glob("*.timer")]
}
SERVICES = {"serve": "activity-retention.service", "run": "activity-retention-run.service"}
TIMER = "activity-retention-run.timer"

each_command = pytest.mark.parametrize("command", ["serve", "run"])
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def container(command: str) -> Any:
    (only,) = PODS[command]["containers"]
    return only


def mounts(command: str) -> Mapping[str, Any]:
    """What a pod sees as files: the ConfigMap or Secret by the folder that it is mounted at."""
    volumes = {volume["name"]: volume for volume in PODS[command]["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container(command)["volumeMounts"]}


def of(unit: str, key: str) -> list[str]:
    return [value for name, value in UNITS[unit] if name == key]


def only(unit: str, key: str) -> str:
    (value,) = of(unit, key)
    return value


def settings_in_kubernetes(command: str, folder: Path) -> Settings:
    environ = {variable["name"]: variable["value"] for variable in container(command)["env"]}
    named = Path(environ[CONFIG_VARIABLE])
    assert mounts(command)[str(named.parent)]["configMap"]["name"] == MANIFESTS["configmap"]["metadata"]["name"]
    config = folder / named.name
    config.write_text(MANIFESTS["configmap"]["data"][named.name], "utf-8")
    return load_settings(environ={**environ, CONFIG_VARIABLE: str(config)}).settings


def settings_under_systemd(command: str) -> Settings:
    environ = dict(assignment.split("=", 1) for assignment in of(SERVICES[command], "Environment"))
    assert Path(environ[CONFIG_VARIABLE]).name == "activity-retention.toml"
    config = OPS / "systemd" / "activity-retention.toml"
    return load_settings(environ={**environ, CONFIG_VARIABLE: str(config)}).settings


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_fit_the_schemas_of_kubernetes(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


@each_command
def test_the_first_night_only_looks_wherever_it_is(command: str, tmp_path: Path) -> None:
    assert settings_in_kubernetes(command, tmp_path).job.dry_run
    assert settings_under_systemd(command).job.dry_run


@each_command
def test_a_pod_finds_its_database_and_its_hold_where_they_are_mounted(command: str, tmp_path: Path) -> None:
    settings = settings_in_kubernetes(command, tmp_path)
    assert settings.database_url_file is not None
    assert settings.job.hold_file is not None

    secret = mounts(command)[str(settings.database_url_file.parent)]["secret"]["secretName"]
    assert secret == MANIFESTS["secret"]["metadata"]["name"]
    assert settings.database_url_file.name in MANIFESTS["secret"]["stringData"]
    assert "configMap" in mounts(command)[str(settings.job.hold_file.parent)]
    # A file that is mounted by subPath never changes: no rotated password, no hold.
    assert not any("subPath" in mount for mount in container(command)["volumeMounts"])


def test_the_template_of_the_secret_holds_a_url_and_no_password(tmp_path: Path) -> None:
    (url,) = MANIFESTS["secret"]["stringData"].values()
    assert ":PASSWORD@" in url
    load_settings({"database_url": url}, environ={})


@each_command
def test_a_pod_may_do_nothing_but_connect(command: str) -> None:
    pod = PODS[command]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(command)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= container(command)["resources"].keys()


@each_command
def test_variables_that_kubernetes_adds_for_services_stay_out(command: str) -> None:
    assert PODS[command]["enableServiceLinks"] is False
    with pytest.raises(Refused, match="ACTIVITY_RETENTION_SERVICE_HOST in the environment is not a setting"):
        load_settings(environ={"ACTIVITY_RETENTION_SERVICE_HOST": "10.0.0.1"})


def test_probes_and_prometheus_ask_where_serve_answers(tmp_path: Path) -> None:
    settings = settings_in_kubernetes("serve", tmp_path)
    assert settings.metrics_address == "0.0.0.0"
    assert container("serve")["ports"] == [{"name": "metrics", "containerPort": settings.metrics_port}]
    probes = [container("serve")[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert {probe["port"] for probe in probes} == {"metrics"}
    annotations = SERVE["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(settings.metrics_port)

    paths = [*(probe["path"] for probe in probes), annotations["prometheus.io/path"]]
    assert paths == ["/livez", "/readyz", "/metrics"]
    server = HealthServer("127.0.0.1", 0, live=lambda: (), ready=lambda: (), registry=CollectorRegistry())
    try:
        for path in paths:
            with urlopen(server.url + path) as answer:
                assert answer.status == 200
    finally:
        server.shutdown()
        server.server_close()


def test_a_rollout_leaves_a_replica_to_wait_for_the_tick() -> None:
    assert SERVE["replicas"] >= 2
    assert SERVE["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    labels = SERVE["template"]["metadata"]["labels"]
    (spread,) = PODS["serve"]["topologySpreadConstraints"]
    assert SERVE["selector"]["matchLabels"] == spread["labelSelector"]["matchLabels"] == labels
    assert labels != RUN["template"]["metadata"]["labels"]


def test_every_shape_names_the_same_tick(tmp_path: Path) -> None:
    calendar, zone = only(TIMER, "OnCalendar").rsplit(" ", 1)
    assert re.fullmatch(r"\*-\*-\* 03:00:00", calendar)
    for settings in (settings_in_kubernetes("run", tmp_path), settings_under_systemd("run")):
        assert settings.job.time_zone.key == CRON["timeZone"] == zone
        assert settings.job.retention_schedule == f"0 {CRON['schedule']}" == "0 0 3 * * *"


def test_a_night_that_could_not_start_in_time_starts_late() -> None:
    assert CRON["concurrencyPolicy"] == "Forbid"
    assert CRON["startingDeadlineSeconds"] >= 3600
    assert only(TIMER, "Persistent") == "yes"


def test_what_was_refused_is_not_tried_again() -> None:
    refused = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [REFUSED]}}
    assert refused in RUN["podFailurePolicy"]["rules"]
    assert PODS["run"]["restartPolicy"] == "Never"  # what a podFailurePolicy demands
    for unit in SERVICES.values():
        assert only(unit, "Restart") == "on-failure"
        assert only(unit, "RestartPreventExitStatus") == str(REFUSED)


@each_command
def test_nobody_kills_before_the_grace_period_is_over(command: str, tmp_path: Path) -> None:
    grace = settings_in_kubernetes(command, tmp_path).job.grace_period
    assert timedelta(seconds=PODS[command]["terminationGracePeriodSeconds"]) >= 2 * grace
    assert (
        parse_duration(only(SERVICES[command], "TimeoutStopSec"))
        >= 2 * settings_under_systemd(command).job.grace_period
    )
    assert "ExecReload" not in dict(UNITS[SERVICES[command]])


def test_nobody_kills_before_a_run_has_had_its_time(tmp_path: Path) -> None:
    run = settings_in_kubernetes("run", tmp_path).job.max_run_duration
    assert timedelta(seconds=RUN["activeDeadlineSeconds"]) > (RUN["backoffLimit"] + 1) * run

    unit = SERVICES["run"]
    limit, pause = parse_duration(only(unit, "TimeoutStartSec")), parse_duration(only(unit, "RestartSec"))
    starts = int(only(unit, "StartLimitBurst"))
    assert limit > settings_under_systemd("run").job.max_run_duration
    # Else the starts would leave the interval one after the other, and never reach their limit.
    assert parse_duration(only(unit, "StartLimitIntervalSec")) > starts * (limit + pause)


def test_both_services_are_locked_in_alike() -> None:
    locked_in = {
        command: text[text.index("User=") :].partition("\n[Install]")[0].strip()
        for command, unit in SERVICES.items()
        if (text := (OPS / "systemd" / unit).read_text("utf-8"))
    }
    assert locked_in["serve"] == locked_in["run"]
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(locked_in["serve"].splitlines())


@needs_systemd
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = (OPS / "systemd" / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace("/opt/activity-retention/bin/activity-retention", str(PROGRAM)))

    verified = subprocess.run(
        ["systemd-analyze", "verify", *UNITS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@needs_systemd
def test_systemd_understands_the_time(tmp_path: Path) -> None:
    said = subprocess.run(
        ["systemd-analyze", "calendar", only(TIMER, "OnCalendar")], capture_output=True, text=True, check=True
    )
    # Moscow is three hours ahead of UTC all the year.
    assert re.search(r"(Next elapse|\(in UTC\)): .* 00:00:00 UTC", said.stdout)


def test_the_image_runs_serve_as_nobody_and_gets_its_signals() -> None:
    lines = (OPS / "container" / "Containerfile").read_text("utf-8").splitlines()
    last = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
    users = {
        f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" for pod in PODS.values()
    }
    assert users == {last["USER"]}
    assert json.loads(last["ENTRYPOINT"]) == ["activity-retention"]
    assert json.loads(last["CMD"]) == container("serve")["args"] == ["serve"]
    assert last["EXPOSE"] == str(Settings().metrics_port)


def test_the_version_is_the_one_of_the_package() -> None:
    for path in [OPS / "container" / "Containerfile", *(OPS / "kubernetes").glob("*.yaml")]:
        text = path.read_text("utf-8")
        found = re.findall(r"activity-retention:(\d\S*)|image\.version=\"(.*)\"", text)
        assert {"".join(version) for version in found} <= {__version__}, path
