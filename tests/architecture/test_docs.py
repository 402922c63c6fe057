"""Documents refer to tests and files that exist, and indexes are complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
DECISIONS = sorted((ROOT / "docs/decisions").glob("0*.md"))

LINK = re.compile(r"\[(`?)(\w+)\1\]\((\.\./tests/[\w/]+\.py)\)")


ANY_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[tuple[str, str]]:
    return [(name, path) for _, name, path in LINK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_a_test_that_a_page_links_to_exists(page: Path) -> None:
    missing = [
        f"{name} in {path}"
        for name, path in links(page)
        if not defines((page.parent / path).resolve(), name)
    ]
    assert missing == []


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_a_file_that_a_page_links_to_exists(page: Path) -> None:
    targets = [link.partition("#")[0] for link in ANY_LINK.findall(page.read_text("utf-8"))]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_a_heading_that_a_page_links_to_exists(page: Path) -> None:
    missing = []
    for link in ANY_LINK.findall(page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if anchor and "://" not in link:
            other = page.parent / target if target else page
            if anchor not in anchors(other):
                missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_has_a_context_a_decision_and_consequences(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert headings[0].startswith(f"# {page.name[:4]}: ")
    assert headings[1:] == ["## Context", "## Decision", "## Consequences"]


def test_the_index_of_decisions_lists_every_page_with_its_title() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text("utf-8")
    titles = {page: page.read_text("utf-8").splitlines()[0] for page in DECISIONS}
    expected = [f"- [{p.name[:4]}]({p.name}) {title[8:]}" for p, title in titles.items()]
    assert re.findall(r"^- \[.*$", index, re.MULTILINE) == expected


def test_the_index_of_the_specification_lists_every_page() -> None:
    index = (ROOT / "docs/spec/README.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs/spec").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def test_names_in_the_specification_and_the_decisions_exist() -> None:
    """A path with a slash or a Go file is upstream's; every other name is one of this project."""
    known: set[str] = set()
    for folder in ("src", "tests", "benchmarks"):
        for module in (ROOT / folder).rglob("*.py"):
            known |= words(module.read_text("utf-8"))
    known |= words((ROOT / "Makefile").read_text("utf-8"))
    unknown = [
        f"{name_of(page)}: {name}"
        for folder in ("spec", "decisions")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
        for name in re.findall(r"`([^`]+)`", page.read_text("utf-8"))
        if "/" not in name and not name.endswith(".go") and words(name) - known
    ]
    assert unknown == []


def test_the_page_on_the_client_links_its_promises() -> None:
    assert len(links(ROOT / "docs" / "client.md")) > 20


def test_every_need_that_the_page_names_has_its_tests() -> None:
    page = ROOT / "docs" / "needs.md"
    rows = re.findall(r"^\| A\d+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 25
    assert [row for row in rows if not LINK.search(row)] == []


def defines(path: Path, name: str) -> bool:
    # A state machine becomes a test by assignment; every other test is a function.
    form = rf"def {name}\(" if name.startswith("test_") else rf"(def {name}\(|{name} = )"
    return path.exists() and bool(
        re.search(rf"^{form}", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
