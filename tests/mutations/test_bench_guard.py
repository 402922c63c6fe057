"""That `make bench-guard` notices what it is there for: a hot path is broken in a copy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FIELDS = (
    "drain/pods.py",
    "    volumes: tuple[Volume, ...] = ()\n",
    "    volumes: tuple[Volume, ...] = ()\n    containers: tuple[dict[str, object], ...] = ()\n",
)
INTERNING = (
    "informers/ingest.py",
    "self._interner.intern(obj)  # mutant: keep-equal-parts, look-at-each",
    "pass",
)
COPIES = (
    "informers/handlers.py",
    "handler.on_add(self.obj, self.initial)",
    "handler.on_add(msgspec.structs.replace(self.obj), self.initial)",
)
READING = (
    "client/http/pool.py",
    "body if body is not None and body.chunked and is_plain else None",
    "body if body is None else None",
)
LOOKING = (
    "informers/ingest.py",
    "self._interner.intern(obj)  # mutant: keep-equal-parts, look-at-each",
    "all(n for n in range(1, 9)); self._interner.intern(obj)",
)
REQUESTS = (
    "drain/eviction.py",
    "            self._pods.evict(\n",
    "            self._pods.get(meta.name, meta.namespace)\n            self._pods.evict(\n",
)
NODES = (
    "operator/replacements/pipeline.py",
    "        if node is not None and node.metadata.uid == replacement.spec.node_uid:\n",
    "        if False:\n",
)
EVENTS = (
    "informers/ingest.py",
    "            self._interner.intern(obj)\n            self._processor.put",
    (
        "            all(n for n in range(1, 9)); self._interner.intern(obj)\n"
        "            self._processor.put"
    ),
)
IMPORTS = ("runtime/manager.py", "__all__ = [", "import kubernetes\n__all__ = [")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("part", "change", "noticed"),
    [
        ("informer", FIELDS, "unused fields or copies?"),
        ("informer", INTERNING, "unused fields or copies?"),
        ("informer", COPIES, "a copy per handler?"),
        ("informer", READING, "work per change?"),
        ("informer", LOOKING, "work per object?"),
        ("events", EVENTS, "work per event?"),
        ("rollout", REQUESTS, "a request per pod?"),
        ("rollout", NODES, "a request per node?"),
        ("imports", IMPORTS, "an eager import?"),
    ],
    ids=[
        "decode-more-fields",
        "keep-equal-parts",
        "copy-per-handler",
        "read-above",
        "look-at-each",
        "look-at-each-event",
        "get-per-pod",
        "gets-per-node",
        "eager-import",
    ],
)
def test_a_broken_hot_path_makes_the_guard_fail(
    tmp_path: Path, part: str, change: tuple[str, str, str], noticed: str
) -> None:
    for folder in ("benchmarks", "src", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    name, whole, broken = change
    module = tmp_path / "src" / "navarchos" / name
    text = module.read_text(encoding="utf-8")
    assert text.count(whole) == 1, f"{name} has changed: what is to be broken is not there"
    module.write_text(text.replace(whole, broken), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guard", part],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert noticed in done.stdout
