"""The public surface of the client."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import navarchos.client

MODULES = [info.name for info in pkgutil.iter_modules(navarchos.client.__path__)]


def test_every_public_name_exists_and_is_listed_once() -> None:
    names = navarchos.client.__all__
    assert len(names) == len(set(names))
    assert all(hasattr(navarchos.client, name) for name in names)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_lists_what_it_defines_for_others(name: str) -> None:
    module: ModuleType = importlib.import_module(f"navarchos.client.{name}")
    listed = set(module.__all__)
    assert all(hasattr(module, each) for each in listed)
    defined = {
        each
        for each, value in vars(module).items()
        if not each.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (isinstance(value, type) or callable(value))
    }
    assert defined <= listed
