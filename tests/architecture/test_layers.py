"""Rules of the architecture that import-linter cannot check."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import navarchos

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted(
    path for path in (ROOT / "tests").rglob("*.py") if "e2e" not in path.relative_to(ROOT).parts
)


def test_importing_the_package_does_not_import_the_operator() -> None:
    """Users of the framework load neither the operator nor the official client."""
    code = (
        "import sys, navarchos\n"
        "heavy = [f'navarchos.{p}' for p in ('operator', 'cli', 'testing')]\n"
        "heavy += ['kubernetes', 'aiohttp', 'rich']\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def modules() -> Iterator[str]:
    for info in pkgutil.walk_packages(navarchos.__path__, "navarchos."):
        if not info.name.endswith("__main__"):
            yield info.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_module_lists_its_public_names_and_has_them(name: str) -> None:
    module = importlib.import_module(name)
    if any(part.startswith("_") for part in name.split(".")):
        return
    defined = public_definitions(module.__file__ or "")
    listed: list[str] = getattr(module, "__all__", [])
    missing = sorted({*defined} - {*listed})
    assert missing == [], f"{name}.__all__ lacks {missing}: list them, or begin them with _"
    for public in listed:
        assert hasattr(module, public), f"{name}.__all__ lists {public}, which does not exist"


def public_definitions(path: str) -> list[str]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]


def calls(path: Path, module: str, name: str) -> list[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == module
    ]


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_time_sleep_is_not_called(path: Path) -> None:
    """Code waits on a clock, a condition or a stop token."""
    assert calls(path, "time", "sleep") == []


THREAD_OWNERS = {"threads.py"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_threads_start_in_thread_groups_only(path: Path) -> None:
    if path.name in THREAD_OWNERS:
        return
    assert calls(path, "threading", "Thread") == []


def test_the_framework_does_not_mention_the_operator() -> None:
    words = ("noderollout", "nodereplacement", "nodedrain", "navarchos.pusher.com")
    for path in SOURCES:
        package = path.relative_to(ROOT / "src" / "navarchos").parts[0]
        if package in {"operator", "cli"}:
            continue
        text = path.read_text(encoding="utf-8").lower()
        assert [word for word in words if word in text] == [], path


def test_structs_are_prepared_before_they_are_decoded_into() -> None:
    """Two threads that prepare one struct at once crash; `navarchos.structs` says why."""
    decorators = {"prepare_decoding", "make_decoder"}
    prepared, decoded, decoders = set[str](), dict[str, Path](), list[Path]()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {ast.unparse(each) for each in node.decorator_list}
                prepared.update({node.name} if names & decorators else ())
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                decoders += [path] if called == "msgspec.json.Decoder" else []
                types = [each.value for each in node.keywords if each.arg == "type"]
                types += node.args[1:2] if called == "msgspec.convert" else []
                if called in {"msgspec.convert", "msgspec.json.decode"}:
                    decoded |= {ast.unparse(each): path for each in types}
    assert {path.name for path in decoders} == {"structs.py"}
    # Types that a codec or a caller has prepared are variables here, not classes.
    structs = {name: path for name, path in decoded.items() if name.strip("_")[0].isupper()}
    assert len(structs) > 8
    assert {name: path for name, path in structs.items() if name not in prepared} == {}
