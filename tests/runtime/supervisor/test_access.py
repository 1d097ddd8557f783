"""The token that `workerctl dev` leaves for the machine's own user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tenantry.credentials import Credentials, load_credentials, save_credentials
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.supervisor.access import grant_access
from tenantry_runtime.tenancy import Authenticator, open_store

BASE_URL = "http://127.0.0.1:8787/client/v4"


async def granted(folder: Path, *, state: str = "state") -> Credentials:
    return await grant_access(
        state_dir=folder / state,
        base_url=BASE_URL,
        credentials_file=folder / "config" / "credentials.json",
        curl_config=folder / "curl.conf",
    )


@pytest.mark.asyncio
async def test_the_token_is_left_for_sdk_and_curl_and_is_valid(tmp_path: Path) -> None:
    credentials = await granted(tmp_path)

    assert credentials.base_url == BASE_URL
    assert load_credentials(tmp_path / "config" / "credentials.json") == credentials
    curl_config = tmp_path / "curl.conf"
    assert curl_config.read_text() == f'header = "Authorization: Bearer {credentials.api_token}"\n'
    assert stat.S_IMODE(curl_config.stat().st_mode) == 0o600
    async with open_store(tmp_path / "state") as store:
        await Authenticator(store).authenticate(credentials.api_token, TenantId("dev"))


@pytest.mark.asyncio
async def test_a_second_start_keeps_the_token(tmp_path: Path) -> None:
    assert await granted(tmp_path) == await granted(tmp_path)


@pytest.mark.asyncio
async def test_a_token_of_another_state_directory_is_replaced(tmp_path: Path) -> None:
    first = await granted(tmp_path)

    assert (await granted(tmp_path, state="other")).api_token != first.api_token


@pytest.mark.asyncio
async def test_a_token_of_another_account_is_not_tried(tmp_path: Path) -> None:
    first = await granted(tmp_path)
    path = tmp_path / "config" / "credentials.json"
    foreign = Credentials(base_url=BASE_URL, account_id="else", api_token=first.api_token)
    save_credentials(foreign, path)

    assert (await granted(tmp_path)).api_token != first.api_token


@pytest.mark.asyncio
async def test_an_account_that_the_store_refuses_gets_no_access(tmp_path: Path) -> None:
    await granted(tmp_path)
    async with open_store(tmp_path / "state") as store:
        await store.accounts.suspend("dev")

    with pytest.raises(ConfigurationError, match=r"account dev.*suspended"):
        await granted(tmp_path)


@pytest.mark.asyncio
async def test_a_broken_credentials_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config" / "credentials.json"
    path.parent.mkdir()
    path.write_text("{")

    assert await granted(tmp_path) == load_credentials(path)


@pytest.mark.asyncio
async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where the folder should be")

    with pytest.raises(ConfigurationError, match=str(tmp_path / "config")):
        await granted(tmp_path)
