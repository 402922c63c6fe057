"""Mutants: deliberate mistakes at places that a comment in the source marks.

A comment `# mutant: NAME` marks the statement or the keyword argument that it stands beside, or the
next one if it stands alone on its line. Several names are separated by commas. So a rename in the
marked code does not break the mutant.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["Edit", "after", "before", "condition", "drop", "mutate", "swap", "value"]

_Node = ast.stmt | ast.keyword

Edit = Callable[[str, _Node], str]
"""Returns the source with a mistake at a node."""


def mutate(folder: Path, name: str, edit: Edit) -> None:
    """Edit the one place below a folder that is marked with this name."""
    mark = re.compile(rf"# mutant: (?:[\w-]+, )*{re.escape(name)}(?![\w-])")
    marked = [
        (path, source)
        for path in sorted(folder.rglob("*.py"))
        if mark.search(source := path.read_text(encoding="utf-8"))
    ]
    assert len(marked) == 1, f"{name} is marked in {len(marked)} modules, not in one"
    ((path, source),) = marked
    assert len(mark.findall(source)) == 1, f"{name} is marked twice in {path}"
    broken = edit(source, _marked_node(source, mark))
    assert broken != source, f"{name} changes nothing"
    ast.parse(broken)
    path.write_text(broken, encoding="utf-8")


def condition(text: str) -> Edit:
    """Replace the condition of the marked `if`."""

    def edit(source: str, node: _Node) -> str:
        assert isinstance(node, ast.If), "the mark is not beside an if"
        return _replaced(source, node.test, text)

    return edit


def value(text: str) -> Edit:
    """Replace the value of the marked assignment, `return` or argument."""

    def edit(source: str, node: _Node) -> str:
        assert isinstance(node, ast.Assign | ast.Return | ast.keyword), "nothing with a value"
        assert node.value is not None
        return _replaced(source, node.value, text)

    return edit


def swap(old: str, new: str) -> Edit:
    """Replace a piece of the condition or value at the mark, such as an operator."""

    def edit(source: str, node: _Node) -> str:
        part = node.test if isinstance(node, ast.If) else getattr(node, "value", node)
        text = ast.get_source_segment(source, part) or ""
        assert text.count(old) == 1, f"{old!r} is not once in {text!r}"
        return _replaced(source, part, text.replace(old, new))

    return edit


def drop() -> Edit:
    """Remove the marked statement or argument."""

    def edit(source: str, node: _Node) -> str:
        if isinstance(node, ast.keyword):
            return re.sub(r"\x00\s*,?", "", _replaced(source, node, "\x00"))
        return _replaced(source, node, "pass")

    return edit


def before(text: str) -> Edit:
    """Insert a statement before the marked one."""
    return lambda source, node: _replaced(source, node, f"{text}; {_text(source, node)}")


def after(text: str) -> Edit:
    """Insert a statement after the marked one."""
    return lambda source, node: _replaced(source, node, f"{_text(source, node)}; {text}")


def _marked_node(source: str, mark: re.Pattern[str]) -> _Node:
    lines = source.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if mark.search(line))
    if lines[number - 1].lstrip().startswith("#"):
        number += 1
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _Node)]
    statements = [n for n in nodes if isinstance(n, ast.stmt) and n.lineno == number]
    arguments = [n for n in nodes if isinstance(n, ast.keyword) and n.lineno == number]
    # A comment beside the end of a statement of several lines marks that statement.
    around = [
        n for n in nodes if isinstance(n, ast.stmt) and _lines(n)[0] <= number <= _lines(n)[1]
    ]
    found = statements or arguments or sorted(around, key=lambda n: _lines(n)[1] - _lines(n)[0])
    assert found, f"the mark in line {number} is beside no statement"
    return found[0]


def _lines(node: _Node) -> tuple[int, int]:
    assert node.end_lineno is not None
    return node.lineno, node.end_lineno


def _text(source: str, node: ast.AST) -> str:
    text = ast.get_source_segment(source, node)
    assert text is not None
    return text


def _replaced(source: str, node: ast.expr | _Node, text: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    whole = source.encode()
    return (whole[:start] + text.encode() + whole[end:]).decode()
