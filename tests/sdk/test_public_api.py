"""What `tenantry` exports is all that is public, and names itself as the place to import from."""

from __future__ import annotations

import inspect
import re

import tenantry
from tenantry import _exports, errors

NOT_OURS = {"annotations", "TYPE_CHECKING", "Any"}


def test_all_names_what_is_public() -> None:
    for module in (tenantry, _exports):
        for name in module.__all__:
            getattr(module, name)
        public = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and not inspect.ismodule(value) and name not in NOT_OURS
        }
        assert {*public, "__version__"} == {*module.__all__, "__version__"}
    assert {*_exports.__all__, "__version__"} == set(tenantry.__all__)


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    assert not hasattr(tenantry, "Nothing")
    assert set(tenantry.__all__) <= set(dir(tenantry))


def test_all_has_each_name_once() -> None:
    assert len(tenantry.__all__) == len(set(tenantry.__all__))


def test_classes_name_the_package_as_their_module() -> None:
    modules = {
        name: getattr(tenantry, name).__module__
        for name in tenantry.__all__
        if name != "__version__"
    }
    assert set(modules.values()) == {"tenantry"}, modules


def test_every_error_is_exported() -> None:
    assert {cls.__name__ for cls in _error_classes()} <= set(tenantry.__all__)


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    drawn = re.findall(
        r"^((?:│   |    )*[├└]── )?(\w+Error|[A-Z]\w+)  +", errors.__doc__ or "", re.M
    )
    depth_of = {name: len(branch) // 4 for branch, name in drawn}
    real = {cls.__name__: len(_lineage(cls)) - 1 for cls in _error_classes()}
    assert depth_of == real


def test_every_error_says_what_happened() -> None:
    assert not [cls.__name__ for cls in _error_classes() if not cls.__doc__]


def _error_classes() -> list[type[tenantry.TenantryError]]:
    return [
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, tenantry.TenantryError)
    ]


def _lineage(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if issubclass(base, tenantry.TenantryError)]
