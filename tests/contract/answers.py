"""What a real kube-apiserver answered, and what may differ from it.

Recorded by `pytest --server=real --record tests/contract`; a file per module. Whatever
a case says to a server is compared, not only what the case asserts.
"""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.contract.exchanges import Exchange

__all__ = ["Answers"]

DIRECTORY = Path(__file__).parent / "answers"


class Answers:
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
        if found != known[case]:
            raise AssertionError("a real server answers otherwise:\n" + _diff(known[case], found))

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


def _diff(wanted: object, found: object) -> str:
    lines = [
        json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
        for each in (wanted, found)
    ]
    return "\n".join(difflib.unified_diff(*lines, "real", "found", lineterm="", n=6))
