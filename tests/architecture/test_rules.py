"""Tests of `make rules`: how it reads docs/spec, and which differences it reports."""

from pathlib import Path

import pytest
from tests.rules.book import Book, Rule, RulesError, read_rules
from tests.rules.pins import Pins

pytest_plugins = ["pytester"]

RULES = {
    rule.id: rule
    for rule in (
        Rule("ST-01", "core"),
        Rule("ST-02", "core", "nothing here would use it"),
        Rule("ST-03", "plus"),
        Rule("RT-01", "note"),
    )
}


def pages(tmp_path: Path, *texts: str) -> Path:
    for number, text in enumerate(texts):
        (tmp_path / f"page{number}.md").write_text(text, encoding="utf-8")
    return tmp_path


def heading(rule: str, level: str = "core", text: str = "A text.") -> str:
    return f"### {rule}: A title\n\n`[{level}]`\n\n{text}\n\n"


def test_rules_are_headings_with_a_level_and_a_text(tmp_path: Path) -> None:
    folder = pages(
        tmp_path,
        "# A page\n\nST-09 is not a heading.\n\n## A part\n\n" + heading("ST-01"),
        heading("N-1", "note", "One paragraph,\nin two lines.\n\nAnd another."),
    )
    assert read_rules(folder) == {"ST-01": Rule("ST-01", "core"), "N-1": Rule("N-1", "note")}


def test_a_rule_that_is_not_taken_has_its_reason_below_its_heading(tmp_path: Path) -> None:
    text = "A text.\n\n**Not taken:** Nothing here\nwould use it."
    folder = pages(tmp_path, heading("ST-16", "plus", text) + heading("ST-17"))
    assert read_rules(folder) == {
        "ST-16": Rule("ST-16", "plus", "Nothing here\nwould use it."),
        "ST-17": Rule("ST-17", "core"),
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (heading("ST-01") + heading("ST-01"), "page0.md:7: ST-01 has two headings"),
        (heading("ST-01", "cor"), "page0.md:1: the line below the heading of ST-01 must be"),
        ("### ST-01: A title\n\nA text.\n", "page0.md:1: the line below the heading of ST-01"),
        (heading("ST-01", text=""), "page0.md:1: ST-01 has no text"),
        (heading("ST-01", text="**Not taken:** A reason."), "page0.md:1: ST-01 has no text"),
        (heading("ST-01", text="A text.\n\n**Not taken:**"), "page0.md:1: ST-01 is not taken, w"),
        ("### ST-01\n\n`[core]`\n\nA text.\n", "page0.md:1: the heading of ST-01 must look like"),
        ("## ST-01: A title\n\n`[core]`\n\nA text.\n", "page0.md:1: the heading of ST-01 must"),
        ("# A page\n", "has no rules"),
    ],
)
def test_a_specification_with_a_mistake_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(RulesError, match=fault):
        read_rules(pages(tmp_path, text))


def test_an_id_with_headings_on_two_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"page1\.md:1: ST-01 has two headings"):
        read_rules(pages(tmp_path, heading("ST-01"), heading("ST-01")))


def test_the_line_of_a_section_has_its_counts() -> None:
    book = Book(RULES, {"RT-01": ["t"]})
    assert book.sections() == ["ST", "RT"]
    assert book.line("ST") == (
        "ST    3 rules,   0 pinned,  1 not taken,  2 not pinned: ST-01 core, ST-03 plus"
    )
    assert book.line("RT") == "RT    1 rules,   1 pinned,  0 not taken,  0 not pinned"


def test_missing_rules_are_neither_pinned_nor_left_out_nor_notes() -> None:
    book = Book({**RULES, "FQ-01": Rule("FQ-01", "core")}, {})
    assert book.missing(["ST", "RT"]) == ["ST-01", "ST-03"]
    assert Book(RULES, {"ST-01": ["t"]}).missing(["ST"]) == ["ST-03"]


def test_the_error_for_an_unknown_section_names_the_sections() -> None:
    with pytest.raises(RulesError, match="no section 'XX': there are ST, RT"):
        Book(RULES, {}).line("XX")


def test_rules_and_pins_that_contradict_each_other_are_mistakes() -> None:
    book = Book(RULES, {"ST-02": ["b", "a"], "ST-98": ["t"]})
    assert book.mistakes() == [
        "ST-98 is pinned by t, but docs/spec has no such rule",
        "ST-02 is not taken, but pinned by a",
    ]
    assert Book(RULES, {"ST-01": ["t"]}).mistakes() == []


def test_markers_count_wherever_pytest_finds_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_them="""
        import pytest

        pytestmark = pytest.mark.rule("ST-01")

        @pytest.mark.rule("ST-02")
        class TestClass:
            @pytest.mark.parametrize(
                "x", [1, pytest.param(2, marks=pytest.mark.rule("ST-03", "ST-04"))]
            )
            def test_it(self, x): ...

        @pytest.mark.skip(reason="later")
        @pytest.mark.rule("ST-05")
        def test_not(): ...

        @pytest.mark.xfail
        @pytest.mark.rule("ST-06")
        def test_neither(): ...
        """
    )
    pins = Pins()
    pytester.inline_run("--collect-only", plugins=[pins])
    both = ["test_them.py::TestClass::test_it[1]", "test_them.py::TestClass::test_it[2]"]
    assert pins.tests == {
        "ST-01": both,
        "ST-02": both,
        "ST-03": both[1:],
        "ST-04": both[1:],
    }
    assert pins.errors == []


def test_a_test_that_cannot_be_collected_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_broken="import nothing_of_that_name")
    pins = Pins()
    pytester.inline_run("--collect-only", plugins=[pins])
    assert len(pins.errors) == 1
    assert "test_broken.py cannot be collected" in pins.errors[0]
    assert "nothing_of_that_name" in pins.errors[0]


def test_the_specification_of_this_project_can_be_read() -> None:
    """`make rules` also collects all tests; this part is quick enough for `make test`."""
    rules = read_rules(Path(__file__).parents[2] / "docs/spec")
    assert {"CL", "CT", "NP"} <= set(Book(rules, {}).sections())
