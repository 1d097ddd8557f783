from __future__ import annotations

import anyio
import pytest

from tenantry_runtime.edge.open_requests import OpenRequests, OpenRequestsStatistics
from tenantry_runtime.errors import CapacityExceeded


@pytest.mark.asyncio
async def test_as_many_are_admitted_as_there_are_places() -> None:
    requests = OpenRequests(2)

    with requests.admit(), requests.admit():
        assert requests.statistics() == OpenRequestsStatistics(num_open=2, is_closed=False)
        with pytest.raises(CapacityExceeded), requests.admit():
            pass

    with requests.admit():
        pass
    assert requests.statistics().num_open == 0


@pytest.mark.asyncio
async def test_closing_cancels_what_is_open_and_admits_no_more() -> None:
    requests = OpenRequests(2)

    with requests.admit() as scope:
        requests.close()
        await anyio.sleep_forever()

    assert scope.cancelled_caught
    with pytest.raises(CapacityExceeded), requests.admit():
        pass


@pytest.mark.asyncio
async def test_what_is_spared_ends_by_itself() -> None:
    requests = OpenRequests(2)

    with requests.admit(is_spared=lambda: True) as spared, requests.admit() as other:
        requests.close()
        assert (spared.cancel_called, other.cancel_called) == (False, True)
    assert requests.statistics() == OpenRequestsStatistics(num_open=0, is_closed=True)


@pytest.mark.asyncio
async def test_a_place_is_free_again_after_an_error() -> None:
    requests = OpenRequests(1)

    with pytest.raises(ZeroDivisionError), requests.admit():
        raise ZeroDivisionError

    assert requests.statistics().num_open == 0
