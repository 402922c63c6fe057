"""Names and sizes of the sources: one class name per concept, and few, large modules."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECTIONS = {
    "Budget",
    "BudgetSpec",
    "BudgetStatus",
    "DaemonSet",
    "Deployment",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodMeta",
    "PodSpec",
    "PodStatus",
}
"""Kinds of Kubernetes of which several parts read different fields."""


def classes() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, str(path.relative_to(ROOT))


def test_a_class_name_stands_for_one_concept() -> None:
    homes = defaultdict(list)
    for name, path in classes():
        homes[name].append(path)
    several = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert {name: several[name] for name in several.keys() - PROJECTIONS} == {}


def test_modules_are_few_and_imports_are_a_small_part_of_them() -> None:
    lines = imports = 0
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert node.end_lineno is not None
                imports += node.end_lineno - node.lineno + 1
    assert lines >= 210 * len(SOURCES)  # decision 0049
    assert imports <= 0.055 * lines
