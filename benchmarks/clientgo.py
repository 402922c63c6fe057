"""Build the peers in Go, once per version, and keep them in the user's cache."""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.processes import ROOT
from navarchos.testing.controlplane.binaries import Cache, cache_directory
from navarchos.testing.controlplane.installer import build
from navarchos.testing.controlplane.tools import Tool

__all__ = ["INFORMER", "WORKQUEUE", "built_with", "program", "version"]

MODULE: Final = ROOT / "benchmarks" / "peers" / "clientgo"
INFORMER: Final = Tool("informer", "kubernetes", "./informer")
WORKQUEUE: Final = Tool("workqueue", "kubernetes", "./workqueue")


def version() -> str:
    """Return the version of client-go that the module requires."""
    found = re.search(r"k8s\.io/client-go (v\S+)", (MODULE / "go.mod").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def program(tool: Tool) -> Path:
    """Return the path of a peer. Build it if no earlier run has.

    Raises:
        BuildFailed: Go is missing, or the build failed.
    """
    cache = Cache(_directory())
    path = cache.path(tool.name)
    with cache.locked(lambda: print("waiting for another run that builds the peers")):
        if not path.exists():
            print(f"building {tool.name} with client-go {version()}: this takes some minutes, once")
            with cache.staging() as folder:
                build(tool, folder / tool.name, MODULE)
                cache.install(folder / tool.name, tool.name)
    return path


def built_with() -> dict[str, str]:
    """Return the versions of client-go and Go that the program reports."""
    said = subprocess.run(
        [program(INFORMER), "version"], capture_output=True, encoding="utf-8", check=True
    )
    found = json.loads(said.stdout)
    return {name: found[name] for name in ("client-go", "go")}


def _directory() -> Path:
    """Return a folder whose name depends on everything that goes into the programs."""
    digest = hashlib.sha256()
    for path in sorted(MODULE.rglob("*")):
        if path.is_file():
            digest.update(os.fsencode(path.relative_to(MODULE)) + b"\0" + path.read_bytes())
    below = f"client-go-{version()}-{digest.hexdigest()[:12]}"
    return cache_directory().parent.parent / "benchmarks" / below
