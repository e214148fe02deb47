"""Traces are wanted where OpenTelemetry's own variables say so (R-OBS-3)."""

from collections.abc import Mapping

import pytest

from activity_retention.config import traces_wanted

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"}


@pytest.mark.parametrize(
    "environ",
    [
        ENDPOINT,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector.example:4318/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "false"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": ""},
        # The standard says: an empty variable is one that is not set.
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": ""},
        # … and this one is a list.
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp,console"},
    ],
    ids=str,
)
def test_a_collector_that_is_named_gets_traces(environ: Mapping[str, str]) -> None:
    assert traces_wanted(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "retention"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector.example:4318"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "console"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
    ],
    ids=str,
)
def test_without_one_or_switched_off_nobody_does(environ: Mapping[str, str]) -> None:
    assert not traces_wanted(environ)


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
    assert traces_wanted()
