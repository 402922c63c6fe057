"""What a real kube-apiserver answered, and what may differ from it.

Recorded by `pytest --server=real --record tests/contract`; a file per module. Whatever
a case says to a server is compared, not only what the case asserts.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.contract.exchanges import Exchange

__all__ = ["RecordedAnswers"]

MISSING = "nothing"
DIRECTORY = Path(__file__).parent / "answers"


# Differences that stay; docs/testing/project-tests.md has the reasons.
STAYS = (
    # Nobody here would take the taint away when a node becomes ready.
    re.compile(r"nodes.*\.spec\.taints:\n  real .*node.kubernetes.io/not-ready"),
    # Nobody asks who manages a question.
    re.compile(r"(token|access)reviews\.body\.metadata\.managedFields:"),
    re.compile(r"serviceaccounts/\S+/token\.body\.metadata\.managedFields:"),
    # Users are told by certificates there, and here by tokens.
    re.compile(r"selfsubjectreviews\.body\.status\.userInfo\.extra:\n  real .*X509SHA256"),
    # Upstream writes the status of a definition in requests of its own.
    re.compile(r"customresourcedefinitions.*\.managedFields:\n  real .*kube-apiserver"),
    # Upstream warns of what it forgives.
    re.compile(r"relics/a\.headers\.Warning:\n  real .*less than 5"),
    # Upstream's tables show what it has in memory, where this is a field of the spec.
    re.compile(r"rows.*\.annotations:\n.*\n.*deprecated\.daemonset\.template\.generation"),
    re.compile(r"managedFields\[0\]:\n  real .*f:deprecated\.daemonset\.template\.generation"),
)


class RecordedAnswers:
    """The recorded answers of all cases.

    Args:
        record: Take new ones instead of comparing.
    """

    def __init__(self, *, record: bool) -> None:
        self.record = record
        self._modules: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()

    def check(self, module: str, case: str, exchanges: Sequence[Exchange]) -> None:
        """Compare what was said in a case with the record, or make that the record."""
        known = self._module(module)
        found = [exchange.to_json() for exchange in exchanges]
        if self.record:
            known[case] = found
            self._changed.add(module)
            return
        assert case in known, f"no record of {case}: run pytest --server=real --record"
        nothing: dict[str, Any] = {}
        lines = [
            line
            for real, ours in zip_longest(known[case], found, fillvalue=nothing)
            for line in _differences(real, ours, str(ours.get("request")))
            if not any(known.search(line) for known in STAYS)
        ]
        if lines:
            raise AssertionError("\n".join(["a real server answers otherwise:", *lines]))

    def save(self) -> None:
        """Write what was recorded."""
        for module in self._changed:
            text = json.dumps(self._modules[module], indent=1, sort_keys=True, ensure_ascii=False)
            (DIRECTORY / f"{module}.json").write_text(text + "\n", encoding="utf-8")

    def _module(self, name: str) -> dict[str, Any]:
        if name not in self._modules:
            path = DIRECTORY / f"{name}.json"
            self._modules[name] = json.loads(path.read_text()) if path.exists() else {}
        return self._modules[name]


def _differences(real: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(real, dict) and isinstance(found, dict):
        for key in sorted({*real, *found}):
            yield from _differences(
                real.get(key, MISSING), found.get(key, MISSING), f"{path}.{key}"
            )
    elif isinstance(real, list) and isinstance(found, list) and len(real) == len(found):
        for index, pair in enumerate(zip(real, found, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif real != found or type(real) is not type(found):
        yield f"{path}:\n  real {_shown(real)}\n  ours {_shown(found)}"


def _shown(value: object) -> str:
    return MISSING if value is MISSING else json.dumps(value, ensure_ascii=False)
