"""The recorded responses of a real kube-apiserver, and the differences that are allowed.

`pytest --server=real --record tests/contract` records them, one file per module. Every response is
compared, not only the asserted ones.
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


# The allowed differences; docs/testing/project-tests.md has the reasons.
STAYS = (
    # No controller of this server would remove the taint when a node becomes ready.
    re.compile(r"nodes.*\.spec\.taints:\n  real .*node.kubernetes.io/not-ready"),
    # Reviews are not stored, so their managed fields have no use.
    re.compile(r"(token|access)reviews\.body\.metadata\.managedFields:"),
    re.compile(r"serviceaccounts/\S+/token\.body\.metadata\.managedFields:"),
    # The real server identifies users by certificates, this one by tokens.
    re.compile(r"selfsubjectreviews\.body\.status\.userInfo\.extra:\n  real .*X509SHA256"),
    # Upstream writes the status of a definition in separate requests.
    re.compile(r"customresourcedefinitions.*\.managedFields:\n  real .*kube-apiserver"),
    # Upstream warns about errors that it accepts because they are old.
    re.compile(r"relics/a\.headers\.Warning:\n  real .*less than 5"),
    # Upstream's tables show an internal field here, which this server has in the spec.
    re.compile(r"rows.*\.annotations:\n.*\n.*deprecated\.daemonset\.template\.generation"),
    re.compile(r"managedFields\[0\]:\n  real .*f:deprecated\.daemonset\.template\.generation"),
)
# Cases in which upstream visits the fields of an object in the random order of a Go map
# (`validateMap` of apiextensions-apiserver's schema/cel), so its causes change places.
ANY_ORDER_OF_CAUSES = frozenset({"test_a_broken_rule_is_reported[several]"})


class RecordedAnswers:
    """The recorded responses of all cases.

    Args:
        record: Replace the records instead of comparing with them.
    """

    def __init__(self, *, record: bool) -> None:
        self.record = record
        self._modules: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()

    def check(self, module: str, case: str, exchanges: Sequence[Exchange]) -> None:
        """Compare the exchanges of a case with the record, or replace the record."""
        known = self._module(module)
        found = [exchange.to_json() for exchange in exchanges]
        if self.record:
            known[case] = found
            self._changed.add(module)
            return
        assert case in known, f"no record of {case}: run pytest --server=real --record"
        expected = known[case]
        if case in ANY_ORDER_OF_CAUSES:
            expected, found = ([_with_sorted_causes(one) for one in e] for e in (expected, found))
        nothing: dict[str, Any] = {}
        lines = [
            line
            for real, ours in zip_longest(expected, found, fillvalue=nothing)
            for line in _differences(real, ours, str(ours.get("request")))
            if not any(known.search(line) for known in STAYS)
        ]
        if lines:
            raise AssertionError("\n".join(["a real server answers otherwise:", *lines]))

    def save(self) -> None:
        """Write the new records."""
        for module in self._changed:
            text = json.dumps(self._modules[module], indent=1, sort_keys=True, ensure_ascii=False)
            (DIRECTORY / f"{module}.json").write_text(text + "\n", encoding="utf-8")

    def _module(self, name: str) -> dict[str, Any]:
        if name not in self._modules:
            path = DIRECTORY / f"{name}.json"
            self._modules[name] = json.loads(path.read_text()) if path.exists() else {}
        return self._modules[name]


def _with_sorted_causes(exchange: dict[str, Any]) -> dict[str, Any]:
    body = exchange["body"]
    before, _, listed = body["message"].partition(": [")
    causes = sorted(body["details"]["causes"], key=lambda cause: str(cause["field"]))
    return exchange | {
        "body": body
        | {
            "message": f"{before}: [{', '.join(sorted(listed.rstrip(']').split(', ')))}]",
            "details": body["details"] | {"causes": causes},
        }
    }


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
