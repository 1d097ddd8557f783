"""Where base URL, account and token come from: arguments, environment, file, in this order."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tenantry import AI, AsyncAI, ConfigurationError
from tenantry._config import Config, resolve_config
from tenantry.credentials import Credentials, credentials_path, save_credentials

FILE_URL = "http://127.0.0.1:8787/client/v4"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine on which `workerctl dev` has left its credentials."""
    environ = {"TENANTRY_CONFIG_DIR": str(tmp_path)}
    saved = Credentials(base_url=FILE_URL, account_id="file-account", api_token="file-token")
    save_credentials(saved, credentials_path(environ))
    return environ


def test_on_a_machine_with_a_runtime_nothing_needs_to_be_set(environ: dict[str, str]) -> None:
    assert resolve_config(environ=environ) == Config(
        base_url=FILE_URL, account_id="file-account", api_token="file-token"
    )


def test_the_environment_goes_before_the_file(environ: dict[str, str]) -> None:
    environ |= {"TENANTRY_ACCOUNT_ID": "env-account", "TENANTRY_API_TOKEN": "env-token"}
    assert resolve_config(environ=environ) == Config(
        base_url=FILE_URL, account_id="env-account", api_token="env-token"
    )


def test_arguments_go_before_the_environment(environ: dict[str, str]) -> None:
    environ |= {
        "TENANTRY_BASE_URL": "http://env/client/v4",
        "TENANTRY_ACCOUNT_ID": "env-account",
        "TENANTRY_API_TOKEN": "env-token",
    }
    config = resolve_config(base_url="http://arg/client/v4", api_token="arg-token", environ=environ)
    assert config == Config(
        base_url="http://arg/client/v4", account_id="env-account", api_token="arg-token"
    )


def test_an_empty_variable_counts_as_unset(environ: dict[str, str]) -> None:
    environ["TENANTRY_API_TOKEN"] = ""
    assert resolve_config(environ=environ).api_token == "file-token"


def test_the_files_token_is_not_sent_to_another_server(environ: dict[str, str]) -> None:
    environ["TENANTRY_BASE_URL"] = "http://elsewhere/client/v4"
    with pytest.raises(ConfigurationError, match=r"not configured: account_id, api_token\."):
        resolve_config(environ=environ)


def test_a_slash_at_the_end_makes_no_other_server(environ: dict[str, str]) -> None:
    environ["TENANTRY_BASE_URL"] = FILE_URL + "/"
    assert resolve_config(environ=environ).api_token == "file-token"
    assert resolve_config(environ=environ).base_url == FILE_URL


def test_a_broken_file_does_not_matter_where_all_is_given(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("broken")
    environ = {
        "TENANTRY_CONFIG_DIR": str(tmp_path),
        "TENANTRY_BASE_URL": FILE_URL,
        "TENANTRY_ACCOUNT_ID": "a",
        "TENANTRY_API_TOKEN": "t",
    }
    assert resolve_config(environ=environ).account_id == "a"


@pytest.mark.parametrize("client", [AI, AsyncAI])
def test_a_missing_configuration_says_what_to_do(
    client: type[AI] | type[AsyncAI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENANTRY_CONFIG_DIR", str(tmp_path))
    for name in ("TENANTRY_BASE_URL", "TENANTRY_ACCOUNT_ID", "TENANTRY_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError) as caught:
        client()
    for word in ("`workerctl dev`", "TENANTRY_BASE_URL", "TENANTRY_API_TOKEN", "account_id"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "base_url", ["127.0.0.1:8787", "ftp://host", "http://", "http://host:port", "x"]
)
def test_a_base_url_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url is"):
        Config(base_url=base_url, account_id="a", api_token="t")


@pytest.mark.parametrize("token", ["two words", "line\nend", "naïve", "tab\t"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Config(base_url=FILE_URL, account_id="a", api_token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "is_loopback"),
    [
        ("http://127.0.0.1:8787", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:8787", True),
        ("http://localhost", True),
        ("https://10.0.0.1", False),
        ("https://api.example.com", False),
        ("https://localhost.example.com", False),
    ],
)
def test_loopback_is_known_by_its_address(base_url: str, is_loopback: bool) -> None:
    assert Config(base_url=base_url, account_id="a", api_token="t").is_loopback is is_loopback


def test_a_client_shows_where_it_goes_but_not_its_token() -> None:
    ai = AI(base_url=FILE_URL, account_id="dev", api_token="very-secret")
    assert repr(ai) == f"AI(base_url='{FILE_URL}', account_id='dev', api_token='[secret]')"
    asynchronous = AsyncAI(base_url=FILE_URL, account_id="dev", api_token="very-secret")
    assert "very-secret" not in repr(asynchronous)


def test_no_error_of_the_transport_shows_the_token() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    ai = AI(
        base_url=FILE_URL,
        account_id="dev",
        api_token="very-secret",
        max_retries=0,
        transport=httpx.MockTransport(refuse),
    )
    with pytest.raises(ConnectionError) as caught:
        ai.run("kimi-k2.6", {"prompt": "?"})
    cause = caught.value.__cause__
    assert isinstance(cause, httpx.ConnectError)
    assert "very-secret" not in f"{caught.value!r} {cause!r} {cause.request.headers!r}"
