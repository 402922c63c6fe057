"""Record the requests of rollouts without faults, and the objects that they leave (NP-06).

A rollout that uses none of the later fields must do what it did before these fields existed: the
same requests with the same bodies, and the same objects at the end. The runs are designed, not
random: a seed decides the cluster and the delays, and every thread has its turn in a fixed order.
So a change elsewhere in the code, which would shift the draws of a random source, does not change
a record.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from tests.model.scheduling import Process
from tests.model.sweeping import SETTINGS, Setting, Sweep

from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.requests import Request

__all__ = ["compare", "record", "write_records"]

_RECORDS: Final = Path(__file__).with_name("recorded.json")

T = TypeVar("T")

_SEEDS: Final = (1, 2)
"""Two clusters for each setting."""

_RANDOM_SETTINGS: Final = {"deleted", "handed over"}
"""Their requests depend on the instant of a user's action or of a new leader."""

_KINDS: Final = ("noderollouts", "nodereplacements", "nodedrains", "nodes")

_NORMALIZED: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\dh\d\dm\d\ds"), "<time>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<uid>"),
)
_CHANGING: Final = frozenset(
    {"resourceVersion", "uid", "creationTimestamp", "managedFields", "observedGeneration"}
)


class _Fixed(random.Random):
    """Draws that depend on the seed and the question only, not on earlier draws."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._number = seed
        self._count = 0

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * (self._number * 0.37 % 1.0)

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # all sequences here
        return seq[self._number % len(seq)]

    def randint(self, a: int, b: int) -> int:
        return a + self._number % (b - a + 1)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0

    def getrandbits(self, k: int) -> int:
        self._count += 1
        return self._number << 32 | self._count  # of uids, which must differ


class _Recorded(Sweep):
    """A run that remembers the requests of the operator, by object."""

    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__(setting, rand=_Fixed(seed))
        self.requests_by_object: dict[str, list[str]] = {}
        self.lists: Counter[str] = Counter()
        before = self.trouble.before

        def remember(process: Process, call: ApiCall, asked: Request) -> None:
            before(process, call, asked)
            self._remember(call, asked)

        self.trouble.before = remember  # type: ignore[method-assign]

    def _remember(self, call: ApiCall, asked: Request) -> None:
        target = call.target
        resource = call.resource
        if target is None or resource in {"leases", "events"}:
            return  # their number depends on how long the run takes
        if call.verb in {"list", "watch"}:
            self.lists[f"{call.verb} {resource}"] += 1
            return
        subresource = f"/{target.subresource}" if target.subresource else ""
        body = msgspec.json.decode(asked.body) if asked.body else None
        name = call.name or (body or {}).get("metadata", {}).get("name", "")
        line = f"{call.verb}{subresource} {_normalized(body)}"
        self.requests_by_object.setdefault(f"{resource} {name}", []).append(line)


def record(name: str, seed: int) -> dict[str, Any]:
    """Return what a setting sends, in order for each object, and the objects that it leaves."""
    run = _Recorded(SETTINGS[name], seed)
    try:
        run.sweep()
        left = {
            f"{plural} {obj['metadata']['name']}": json.loads(_normalized(obj))
            for plural in _KINDS
            for obj in run.server.list(plural, "" if plural == "nodes" else "navarchos.pusher.com")
        }
    finally:
        run.close()
    requests = {key: run.requests_by_object[key] for key in sorted(run.requests_by_object)}
    return {"lists": dict(sorted(run.lists.items())), "requests": requests, "objects": left}


def write_records() -> list[str]:
    """Replace the records; return nothing to report."""
    text = json.dumps(_record_all(), indent=1, sort_keys=True)
    _RECORDS.write_text(f"{text}\n", encoding="utf-8")
    return []


def compare() -> list[str]:
    """Return the differences from the records, in words; empty if there are none."""
    known, found = json.loads(_RECORDS.read_text(encoding="utf-8")), _record_all()
    return [*_differences(known, found, "")]


def _differences(known: Any, found: Any, where: str) -> Iterator[str]:
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted({*known, *found}):
            yield from _differences(known.get(key), found.get(key), f"{where}/{key}")
    elif isinstance(known, list) and isinstance(found, list):
        for index, pair in enumerate(zip_longest(known, found)):
            yield from _differences(*pair, f"{where}[{index}]")
    elif known != found:
        yield f"{where}:\n  before {json.dumps(known)}\n  now    {json.dumps(found)}"


def _record_all() -> dict[str, Any]:
    """Return the records of all settings and seeds, as JSON data."""
    return {
        f"{name}, {seed}": record(name, seed)
        for name in SETTINGS
        if name not in _RANDOM_SETTINGS
        for seed in _SEEDS
    }


def _normalized(value: Any) -> str:
    """Return JSON in which times, uids and versions are hidden."""
    text = json.dumps(_hidden(value), sort_keys=True)
    for pattern, replacement in _NORMALIZED:
        text = pattern.sub(replacement, text)
    return text


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: f"<{key}>" if key in _CHANGING else _hidden(each) for key, each in value.items()
        }
    return [_hidden(each) for each in value] if isinstance(value, list) else value
