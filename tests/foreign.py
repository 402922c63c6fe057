"""Another cluster to run cases on, when the environment names one by a kubeconfig.

Then only tests that take `target` run, for all others have servers of their own; and it
is said which cluster it is before anything is done to it.
"""

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from navarchos.client import load_config
from navarchos.errors import ConfigError

__all__ = ["FOREIGN", "IMAGE", "foreign_kubeconfig"]

FOREIGN: Final = "NAVARCHOS_E2E_KUBECONFIG"
"""The variable. `KUBECONFIG` itself never counts: it names the cluster that somebody works on."""

IMAGE: Final = "NAVARCHOS_E2E_IMAGE"
"""The variable that says which image the nodes of that cluster have."""


def foreign_kubeconfig() -> Path | None:
    """Return the kubeconfig of the cluster to test on; `None` for one of our own."""
    named = os.environ.get(FOREIGN)
    return Path(named).absolute() if named else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say which cluster it is; also where pytest is told to be quiet."""
    path = foreign_kubeconfig()
    if path is None:
        return
    try:
        host = load_config(kubeconfig=path).host
    except ConfigError as error:
        raise pytest.UsageError(f"{FOREIGN}: {error}") from error
    context = yaml.safe_load(path.read_text(encoding="utf-8")).get("current-context", "")
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line(f"cases run on the cluster at {host}, context {context} of {path}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would not run on that cluster."""
    if foreign_kubeconfig() is None:
        return
    elsewhere = [item for item in items if "target" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if item not in elsewhere]
