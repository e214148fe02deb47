"""The settings of what watches a run: no fault, and no look at them, shows a password (R-CFG)."""

from pathlib import Path

import pytest

from activity_retention.config import load_settings
from activity_retention.errors import Refused
from activity_retention.settings import shown, values

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def an_empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(key: str, value: object) -> str:
    with pytest.raises(Refused) as refused:
        load_settings({key: value}, environ={})
    (reason,) = refused.value.reasons
    return reason


def test_the_defaults_listen_on_loopback_and_hand_over_to_nobody() -> None:
    loaded = values(load_settings(environ={}).settings)
    assert {key: loaded[key] for key in ("run_retries", "metrics_address", "metrics_port")} == {
        "run_retries": 3,
        "metrics_address": "127.0.0.1",
        "metrics_port": 9464,
    }
    assert loaded["pushgateway_url"] is None
    assert loaded["textfile"] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run_retries", "-1"),
        ("run_retries", "many"),
        ("metrics_port", "-1"),
        ("metrics_port", "65536"),
        ("metrics_port", "http"),
        ("textfile", " "),
        ("metrics_address", ""),
        ("metrics_address", "db.example"),
        ("metrics_address", "127.0.0.1:9464"),
        ("metrics_address", "256.0.0.1"),
        ("metrics_address", "*"),
    ],
)
def test_each_wrong_value_is_refused_by_its_key_value_and_remedy(key: str, value: str) -> None:
    """Case F1."""
    reason = refusal(key, value)
    assert reason.startswith(f"{key} = {value!r} (--{key.replace('_', '-')}): write ")


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::", "localhost"])
def test_an_address_of_any_family_is_taken(address: str) -> None:
    assert load_settings({"metrics_address": address}, environ={}).settings.metrics_address == address


@pytest.mark.parametrize(
    "url",
    [
        "http://gateway.example:9091",
        "https://gateway.example",
        "http://gateway.example/behind/a/path/",
        "http://[::1]:9091",
        f"http://job:{SECRET}@gateway.example:9091",
        f"https://job:p%40ss%2F{SECRET}@gateway.example",
    ],
)
def test_a_gateway_is_an_http_url(url: str) -> None:
    settings = load_settings({"pushgateway_url": url}, environ={}).settings
    assert settings.pushgateway_url is not None
    assert settings.pushgateway_url.get_secret_value() == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "gateway.example",
        "gateway.example:9091",
        "ftp://gateway.example",
        "http://",
        "http://:9091",
        "http://gateway.example:http",
        "http://gateway.example:0",
        "http://gateway.example:99999",
        "http://[::1",
        "http://gateway.example:9091/?query",
        "http://gateway.example:9091/#fragment",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_the_remedy(url: str) -> None:
    reason = refusal("pushgateway_url", url)
    assert reason.startswith("pushgateway_url = ")
    assert "(--pushgateway-url): " in reason
    assert "write http://host:9091" in reason


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://job:{SECRET}@gateway.example",
        f"job:{SECRET}@gateway.example:9091",
        f"http://job:{SECRET}@:9091",
        f"http://job:{SECRET}@gateway.example:0",
        f"http://job:{SECRET}@gateway.example:99999",
        f"http://job:{SECRET}/1@gateway.example:9091",
        f"http://job:1/{SECRET}@gateway.example:9091",
        f"http://job:{SECRET}?@gateway.example:9091",
        f"http://job:{SECRET}#@gateway.example:9091",
        f"http://job:{SECRET}[@gateway.example:9091",
        f"http://job:{SECRET}\uff0f@gateway.example",
        f"http://job:{SECRET}%40gateway.example:9091",
        f"http://job:{SECRET}",
        f"http://job:{SECRET}/\n@gateway.example",
    ],
)
def test_a_password_in_a_url_that_is_refused_is_never_shown(url: str) -> None:
    """Unencoded, its special characters make a piece of it a port, a path or a query."""
    reason = refusal("pushgateway_url", url)
    assert SECRET not in reason
    assert "write http://host:9091" in reason


@pytest.mark.parametrize(
    "toml", [f'["http://job:{SECRET}@gateway.example"]', f'"ftp://job:{SECRET}@gateway.example"']
)
def test_no_refusal_quotes_a_password_of_the_file(toml: str) -> None:
    Path("activity-retention.toml").write_text(f"version = 1\npushgateway_url = {toml}\n")
    with pytest.raises(Refused, match="pushgateway_url = ") as refused:
        load_settings(environ={})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("password", [SECRET, f"p@ss{SECRET}", f"{SECRET}%2F%40"])
def test_a_password_of_a_gateway_shows_nowhere_while_its_host_does(password: str) -> None:
    loaded = load_settings({"pushgateway_url": f"http://job:{password}@gateway.example:9091/path"}, environ={})
    for said in (
        repr(loaded),
        str(loaded.settings),
        loaded.settings.model_dump_json(),
        str(values(loaded.settings)),
    ):
        assert SECRET not in said
    assert values(loaded.settings)["pushgateway_url"] == "http://(hidden)@gateway.example:9091/path"


def test_a_url_without_a_password_shows_as_it_is() -> None:
    assert shown("pushgateway_url", "http://gateway.example:9091") == "http://gateway.example:9091"
