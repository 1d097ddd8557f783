"""Which ids and names the store takes."""

from __future__ import annotations

import pytest

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy.names import check_id, check_name


@pytest.mark.parametrize(
    "id",
    ["", "Acme", "a b", "-a", "_a", "a/b", "é", "a" * 65, "a\n", "a\x00"],
    ids=["empty", "capital", "space", "dash", "underscore", "slash", "accent", "long", "line", "0"],
)
def test_an_id_that_would_be_trouble_elsewhere_is_refused(id: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_id("account", id)

    assert refused.value.field == "account"


@pytest.mark.parametrize("id", ["a", "0", "a" * 64, "team-1_b"])
def test_an_id_may_have_letters_digits_and_dashes(id: str) -> None:
    check_id("account", id)


@pytest.mark.parametrize("name", ["", "x" * 257, "two\nlines"], ids=["empty", "long", "lines"])
def test_a_name_is_a_line_of_text(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_name(name)

    assert refused.value.field == "name"


@pytest.mark.parametrize("name", ["Acme, Inc.", "x" * 256, "Société \u2603"])
def test_a_name_may_have_any_letters(name: str) -> None:
    check_name(name)
