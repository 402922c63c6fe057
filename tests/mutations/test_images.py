"""Mutation tests of the images of real nodes: each mistake must fail a unit test."""

import os
from pathlib import Path
from typing import Final

import pytest
from tests.mutations.marks import Edit, condition, drop, swap, value
from tests.mutations.test_pipeline import fails, is_marked

_UNIT: Final = "tests/unit/testing/nodes"
_BUILDS: Final = f"{_UNIT}/test_builds.py"
_IMAGES: Final = f"{_UNIT}/test_images.py"
_IMPORTED: Final = f"{_UNIT}/test_imported.py"
_LAYERS: Final = f"{_UNIT}/test_layers.py"

MUTANTS: Final[dict[str, tuple[Edit, str]]] = {
    "changed-files-are-cached": (swap("fingerprint(name, path)", "name"), _BUILDS),
    "command-of-the-base": (value("config.command"), _BUILDS),
    "databases-are-shared": (drop(), _IMPORTED),
    "files-of-the-builder": (drop(), _IMAGES),
    "ignored-copied": (condition("path is not None"), _LAYERS),
    "images-removed-while-in-use": (drop(), _IMPORTED),
    "links-lead-out": (condition("False"), _LAYERS),
    "opaque-folders-show-lower-files": (condition("False"), _IMAGES),
    "removed-files-come-back": (condition("False"), _LAYERS),
    "variables-change-nothing": (swap("sorted(env.items())", "0"), _BUILDS),
}
"""The mistake at the mark of this name, and the module whose tests must find it."""

# All of them take half a minute: `make nightly` runs them.
PLAYED: Final = (*MUTANTS,) if "NAVARCHOS_SEEDS" in os.environ else ("removed-files-come-back",)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_mistake_in_images_fails_a_unit_test(tmp_path: Path, name: str) -> None:
    fails(tmp_path, name, *MUTANTS[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_the_place_of_every_mutant_is_marked(tmp_path: Path, name: str) -> None:
    is_marked(tmp_path, name, MUTANTS[name][0])
