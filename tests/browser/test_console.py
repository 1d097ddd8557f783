"""The operator's console in a real browser: it logs in, refreshes itself, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from support.browser import Page, a_page
from support.dev_server import LAST_LINE, DevServer, a_dev_server
from tenantry import AI
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import open_store

pytestmark = pytest.mark.browser

PATIENCE_S = 200.0
MODELS = ("@cf/moonshotai/kimi-k2.6", "@cf/zai-org/glm-5.2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with a_dev_server(tmp_path_factory.mktemp("dev"), patience_s=PATIENCE_S) as server:
        server.wait_for_line(LAST_LINE)
        yield server


@pytest.fixture(scope="module")
def token(server: DevServer) -> str:
    async def create() -> str:
        async with open_store(server.state_dir) as store:
            made = await store.create_token(TenantId("dev"), name="console", scopes=["admin"])
            return made.secret

    return anyio.run(create)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with a_page(tmp_path / "profile") as page:
        yield page


def log_in(page: Page, server: DevServer, token: str) -> None:
    page.open(f"http://127.0.0.1:{server.port}/console")
    page.value(f"document.querySelector('#token').value = {token!r}")
    page.value("document.querySelector('form').requestSubmit()")
    page.until("document.readyState === 'complete' && !!document.querySelector('#state')")
    # that the first page asks for a token is a 401
    page.errors.clear()


def ask(server: DevServer) -> None:
    credentials = server.credentials
    with AI(
        base_url=credentials.base_url,
        account_id=credentials.account_id,
        api_token=credentials.api_token,
    ) as ai:
        for model in MODELS:
            ai.run(model, {"prompt": "What is 17 + 25?", "temperature": 0})


def test_what_happens_is_on_the_page_without_reloading_it(
    page: Page, server: DevServer, token: str
) -> None:
    log_in(page, server, token)
    page.value("window.isTheSame = true")
    page.until("document.querySelector('#state').textContent === 'live'")
    assert page.value("document.querySelectorAll('polyline').length") == 0

    ask(server)

    page.until("document.querySelectorAll('polyline').length >= 2 * 3")
    assert page.value("window.isTheSame"), "the page was not loaded anew"
    assert page.errors == []
    text = page.value("document.body.innerText")
    assert all(model in text for model in MODELS)
    assert "1 of 1" in text


def test_what_is_opened_stays_open_over_refreshes(
    page: Page, server: DevServer, token: str
) -> None:
    log_in(page, server, token)
    page.value("document.querySelector('details').open = true")
    page.value("window.first = document.querySelector('main')")
    page.until("document.querySelector('main') !== window.first")
    assert page.value("document.querySelectorAll('details[open]').length") == 1
    assert page.value("document.querySelector('details[open] li').checkVisibility()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_and_can_be_read(
    page: Page, server: DevServer, token: str, tmp_path: Path, width: int, dark: bool
) -> None:
    page.resize(width, dark=dark)
    log_in(page, server, token)
    for path in ("/console", "/console/pages"):
        page.open(f"http://127.0.0.1:{server.port}{path}")
        page.until("document.querySelectorAll('section').length > 0")
        # nothing but what scrolls by itself is wider than the window
        assert page.value("document.documentElement.scrollWidth <= window.innerWidth")
        contrast = page.value(CONTRAST)
        assert contrast >= 4.5, "as WCAG 2 asks of text"
    page.screenshot(tmp_path / "console.png")


CONTRAST = """
(() => {
  const style = getComputedStyle(document.body);
  const luminance = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((x) => {
      const c = x / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [luminance(style.color), luminance(style.backgroundColor)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})()
"""


def test_a_wrong_token_says_so_and_shows_nothing(page: Page, server: DevServer) -> None:
    page.open(f"http://127.0.0.1:{server.port}/console")
    page.value("document.querySelector('#token').value = 'tenantry_wrong'")
    page.value("document.querySelector('form').requestSubmit()")
    page.until("!!document.querySelector('[role=alert]')")
    assert "no admin token" in page.value("document.body.innerText")
    assert page.value("document.querySelector('#state')") is None
