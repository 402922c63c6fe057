"""Fake programs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from navarchos.testing.controlplane.tools import Tool, ToolVersion, parse_version


@pytest.fixture
def make_program() -> Callable[[Path, str, str], Path]:
    """Write a shell script that reports a version."""

    def make(directory: Path, name: str, version: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / name
        path.write_text(f"#!/bin/sh\necho {name} {version}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def version_in_file() -> Callable[[Tool, Path], ToolVersion | None]:
    """Return the version that a fake program reports."""
    return lambda _, path: parse_version(path.read_text())
