"""A real control plane, and what is needed to look at it from outside.

Tests here may poll: what they wait for happens in other processes. They never skip
because a program is missing: `make controlplane` gets it.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from navarchos.stopping import StopToken
from navarchos.testing.controlplane import KUBECTL, ControlPlane, find_binaries

LATE = 60.0


def wait_until(look: Callable[[], object], timeout: float = LATE) -> None:
    """Wait until `look` returns something true."""
    deadline = time.monotonic() + timeout
    nobody = StopToken()
    while not look():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        nobody.wait(0.05)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until a function returns something true."""
    return wait_until


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    """The kubectl of the pinned version, or a later one."""
    return find_binaries([KUBECTL])[KUBECTL].path


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One control plane for all tests, with fake kubelets for marked nodes.

    Objects stay from test to test: use a namespace and names of your own.
    """
    with ControlPlane() as plane:
        plane.kwok()
        yield plane
