"""What documents say of tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))

LINK = re.compile(r"\[(`?)(\w+)\1\]\((\.\./tests/[\w/]+\.py)\)")


def links(page: Path) -> list[tuple[str, str]]:
    return [(name, path) for _, name, path in LINK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_test_that_a_page_links_to_exists(page: Path) -> None:
    missing = [
        f"{name} in {path}"
        for name, path in links(page)
        if not defines((page.parent / path).resolve(), name)
    ]
    assert missing == []


def test_the_page_on_the_client_links_its_promises() -> None:
    assert len(links(ROOT / "docs" / "client.md")) > 20


def test_every_need_that_the_page_names_has_its_tests() -> None:
    page = ROOT / "docs" / "needs.md"
    rows = re.findall(r"^\| A\d+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 25
    assert [row for row in rows if not LINK.search(row)] == []


def defines(path: Path, name: str) -> bool:
    # A state machine becomes a test by assignment; all others are functions.
    form = rf"def {name}\(" if name.startswith("test_") else rf"(def {name}\(|{name} = )"
    return path.exists() and bool(
        re.search(rf"^{form}", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
