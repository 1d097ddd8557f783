"""Forms that are none, or are too much at one time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from support.control_plane import ACME, GLOBEX, ControlPlane, an_upload
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.control.upload_slots import UploadSlots

MALFORMED: dict[str, tuple[dict[str, str], bytes, int]] = {
    "no form": ({"content-type": "application/json"}, b"{}", 400),
    "no boundary": ({"content-type": "multipart/form-data"}, b"", 400),
    "cut off": ({"content-type": "multipart/form-data; boundary=x"}, b"--x\r\n", 400),
    "not of its boundary": ({"content-type": "multipart/form-data; boundary=x"}, b"--y--\r\n", 400),
    "compressed": (
        {"content-type": "multipart/form-data; boundary=x", "content-encoding": "gzip"},
        b"",
        400,
    ),
    "a part without a name": (
        {"content-type": "multipart/form-data; boundary=x"},
        b"--x\r\ncontent-type: text/plain\r\n\r\na\r\n--x--\r\n",
        400,
    ),
    "too long by its header": (
        {
            "content-type": "multipart/form-data; boundary=x",
            "content-length": str(1 << 30),
        },
        b"",
        413,
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_no_form_is_refused(plane: ControlPlane, case: str) -> None:
    headers, content, status = MALFORMED[case]

    assert (await plane.ask("PUT", "", headers=headers, content=content)).status == status


@pytest.mark.asyncio
async def test_a_part_that_comes_twice_is_refused(plane: ControlPlane) -> None:
    form = an_upload()

    put = await plane.ask("PUT", "", files=[*form, form[-1]])

    assert put.status == 400
    assert "entry.py" in put.message


@pytest.mark.asyncio
async def test_an_upload_that_is_refused_is_read_to_its_end(plane: ControlPlane) -> None:
    sent = 0

    async def content() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(16):
            yield b"x" * 65_536
            sent += 1

    headers = {"content-type": "multipart/form-data; boundary=x"}
    refused = await plane.ask("PUT", "", content=content(), headers=headers)

    assert (refused.status, sent) == (400, 16)


@pytest.mark.asyncio
async def test_one_account_does_not_have_all_the_slots() -> None:
    slots = UploadSlots(max_held=3, max_of_account=2)
    held: list[str] = []

    async def hold(account: TenantId) -> None:
        async with slots.hold(account):
            held.append(account)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        for account in (ACME, ACME, ACME, GLOBEX):
            tasks.start_soon(hold, account)
        await anyio.wait_all_tasks_blocked()
        assert held == [ACME, ACME, GLOBEX]
        tasks.cancel_scope.cancel()

    assert slots.statistics() == (0, 0)
