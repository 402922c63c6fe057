"""Log lines have one shape: an event name, and the same keys for the same facts."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[a-z]+(_[a-z0-9]+)*")
OTHER_KEYS = {
    "why": "error",
    "exc": "error",
    "exception": "error",
    "failure": "error",
    "object": "kind, namespace, name",
    "obj": "kind, namespace, name",
    "drain": "kind, name",
    "rollout": "kind, name",
    "replacement": "kind, name",
    "pod": "kind, namespace, name",
}
"""Keys that are not used, each with the key to use."""


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in {"_log", "log"}
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_an_event_is_a_name_and_not_a_sentence() -> None:
    calls = list(log_calls())
    assert len(calls) > 60
    wrong = []
    for place, call in calls:
        event = call.args[0] if len(call.args) == 1 else None
        is_name = isinstance(event, ast.Constant) and EVENT.fullmatch(str(event.value))
        if not is_name:
            wrong.append(f"{place}: {ast.unparse(call)}")
    assert wrong == []


def test_the_same_fact_has_the_same_key_everywhere() -> None:
    wrong = [
        f"{place}: {keyword.arg}= should be {OTHER_KEYS[keyword.arg]}="
        for place, call in log_calls()
        for keyword in call.keywords
        if keyword.arg in OTHER_KEYS
    ]
    assert wrong == []
