"""`make rules` counts what it says that it counts."""

from pathlib import Path

import pytest
from tests.rules.book import Book, RulesError, read_ids, read_not_taken
from tests.rules.pins import Pins

pytest_plugins = ["pytester"]

LEVELS = {"ST-01": "core", "ST-02": "core", "ST-03": "plus", "RT-01": "note"}


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "list"
    path.write_text(text, encoding="utf-8")
    return path


def test_ids_have_a_level_each(tmp_path: Path) -> None:
    path = file(tmp_path, "# all of them\nST-01 core\n\nRT-01 note\n")
    assert read_ids(path) == {"ST-01": "core", "RT-01": "note"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("ST-01 cor", "list:1: 'cor' is none of"),
        ("ST-01", "list:1: '' is none of"),
        ("ST01 core", "'ST01' is no id of a rule"),
        ("ST-01 core\nST-01 plus", "list:2: ST-01 stands here twice"),
    ],
)
def test_a_broken_list_of_ids_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(RulesError, match=fault):
        read_ids(file(tmp_path, text))


def test_reasons_are_the_rows_that_begin_with_an_id(tmp_path: Path) -> None:
    text = "# Not taken\n\n| rule | why not |\n|---|---|\n| ST-16 | nobody | asks |\nST-17 is.\n"
    assert read_not_taken(file(tmp_path, text)) == {"ST-16": "nobody | asks"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("| ST-16 | |", "list:1: ST-16 has no reason"),
        ("| ST-16 |", "list:1: ST-16 has no reason"),
        ("| ST-16 | a |\n| ST-16 | b |", "list:2: ST-16 stands here twice"),
    ],
)
def test_a_rule_is_not_left_out_without_one_reason(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(RulesError, match=fault):
        read_not_taken(file(tmp_path, text))


def test_a_section_tells_what_is_pinned_left_out_and_left() -> None:
    book = Book(LEVELS, {"ST-02": "no"}, {"RT-01": ["t"]})
    assert book.sections() == ["ST", "RT"]
    assert book.line("ST") == (
        "ST    3 rules,   0 pinned,  1 not taken,  2 not pinned: ST-01 core, ST-03 plus"
    )
    assert book.line("RT") == "RT    1 rules,   1 pinned,  0 not taken,  0 not pinned"


def test_only_a_core_rule_of_the_asked_sections_is_missed() -> None:
    book = Book({**LEVELS, "FQ-01": "core"}, {"ST-02": "no"}, {})
    assert book.missing(["ST", "RT"]) == ["ST-01"]
    assert Book(LEVELS, {"ST-02": "no"}, {"ST-01": ["t"]}).missing(["ST"]) == []


def test_an_unknown_section_is_named() -> None:
    with pytest.raises(RulesError, match="no section 'XX': there are ST, RT"):
        Book(LEVELS, {}, {}).line("XX")


def test_lists_and_pins_that_contradict_each_other_are_mistakes() -> None:
    book = Book(LEVELS, {"ST-01": "no", "ST-99": "no"}, {"ST-01": ["b", "a"], "ST-98": ["t"]})
    assert book.mistakes() == [
        "ST-98 is no known rule, but pinned by t",
        "ST-99 is no known rule, but listed as not taken",
        "ST-01 is listed as not taken, but pinned by a",
    ]
    assert Book(LEVELS, {"ST-02": "no"}, {"ST-01": ["t"]}).mistakes() == []


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


def test_the_lists_of_this_project_can_be_read_and_name_known_rules() -> None:
    """`make rules` also collects all tests; this much of it `make test` can afford."""
    root = Path(__file__).parents[2]
    levels = read_ids(root / "tests/rules/ids.txt")
    assert Book(levels, read_not_taken(root / "docs/rules-not-taken.md"), {}).mistakes() == []
