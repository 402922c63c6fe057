"""An existing cluster to run cases on, if the environment names its kubeconfig.

Only tests that use the fixture `target` run on it, because all others start their own
server. The name of the cluster is printed before any test runs.
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
"""The variable. `KUBECONFIG` itself never counts: it may name a production cluster."""

IMAGE: Final = "NAVARCHOS_E2E_IMAGE"
"""The variable that says which image the nodes of that cluster have."""


def foreign_kubeconfig() -> Path | None:
    """Return the kubeconfig of the existing cluster; `None` to start a server."""
    named = os.environ.get(FOREIGN)
    return Path(named).absolute() if named else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the name of the cluster, also with `pytest -q`."""
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
    """Deselect the tests that do not run on an existing cluster."""
    if foreign_kubeconfig() is None:
        return
    elsewhere = [item for item in items if "target" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if item not in elsewhere]
