"""Maps of pages as pictures, read back by another implementation."""

from __future__ import annotations

from io import BytesIO
from itertools import product

from PIL import Image

from tenantry_runtime.edge.operator.map_image import WIDTH, color, png
from tenantry_runtime.pool.page_map import BEYOND, FIRST_TENANT, STATES, PageMap


def a_map(states: bytes, owners: bytes) -> PageMap:
    return PageMap(model="m", phases=("decode",), states=states, owners=owners, tenants=("a", "b"))


def test_every_page_is_a_pixel_in_its_place() -> None:
    num_pages = 2 * WIDTH + 5
    states = bytes(n % 5 for n in range(num_pages))
    owners = bytes((0, 2, 3)[n % 3] for n in range(num_pages))
    image = Image.open(BytesIO(png(a_map(states, owners))))
    assert image.size == (WIDTH, 3)
    for page in range(num_pages):
        expected = color(owners[page], STATES[states[page]])
        assert image.getpixel((page % WIDTH, page // WIDTH)) == expected


def test_owners_and_states_can_be_told_apart() -> None:
    owners = range(FIRST_TENANT, FIRST_TENANT + 12)
    states = ("private", "shared", "quiescing")
    colors = {color(owner, state) for owner, state in product(owners, states)}
    assert len(colors) == 12 * 3
    assert color(2, "quarantined") == color(BEYOND, "quarantined")


def test_an_empty_pool_has_a_picture_too() -> None:
    assert Image.open(BytesIO(png(a_map(b"", b"")))).size == (WIDTH, 1)
