from pathlib import Path

import pytest

from navarchos.testing.nodes.dockerfile import (
    DockerfileInvalid,
    Instruction,
    Keyword,
    argument_list,
    argument_values,
    expand,
    is_ignored,
    pairs,
    read_dockerfile,
    read_ignore_file,
    words,
)

ROOT = Path(__file__).parents[4]


def instruction(text: str, keyword: Keyword = Keyword.ENV) -> Instruction:
    return Instruction(7, keyword, text)


def test_stages_have_bases_and_names() -> None:
    variables, stages = read_dockerfile(
        "# a comment\n"
        "ARG VERSION=3.13\n"
        "ARG FLAVOUR\n"
        "from python:${VERSION}-slim as Build\n"
        "RUN make\n"
        "\n"
        "FROM build\n"
        'CMD ["sh"]\n',
        {"VERSION": "3.11"},
    )
    assert variables == {"VERSION": "3.11"}
    assert [(stage.number, stage.base, stage.name) for stage in stages] == [
        (0, "python:3.11-slim", "Build"),
        (1, "build", ""),
    ]
    assert [stage.is_called("BUILD") for stage in stages] == [True, False]
    assert [stage.is_called("1") for stage in stages] == [False, True]
    assert not stages[1].is_called("")
    assert [str(each) for stage in stages for each in stage.instructions] == [
        "RUN make",
        'CMD ["sh"]',
    ]


def test_lines_are_continued_over_comments_and_empty_lines() -> None:
    _, (stage,) = read_dockerfile(
        "FROM scratch\nRUN one \\\n  # not part of it\n\n  && two \\\n  && three\nUSER 1\n", {}
    )
    assert [(each.line, each.text) for each in stage.instructions] == [
        (2, "one   && two   && three"),
        (7, "1"),
    ]


def test_options_stand_before_the_arguments() -> None:
    _, (stage,) = read_dockerfile("FROM scratch\nCOPY --from=a --chown=1:2 b --c d\n", {})
    (copy,) = stage.instructions
    assert copy.options == {"from": "a", "chown": "1:2"}
    assert copy.text == "b --c d"
    assert str(copy) == "COPY --from=a --chown=1:2 b --c d"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "it has no FROM"),
        ("RUN make\nFROM scratch", 1, "RUN stands before FROM"),
        ("FROM scratch\nHEALTHCHECK NONE", 2, "HEALTHCHECK is not supported"),
        ("FROM scratch\nADD a b", 2, "ADD is not supported"),
        ("FROM --platform=linux/arm64 x", 1, "FROM --platform is not supported"),
        ("FROM scratch\nRUN --mount=type=cache,target=/x y", 2, "RUN --mount is not supported"),
        ("FROM scratch\nCOPY --link a b", 2, "COPY --link is not supported"),
        ("FROM scratch\nRUN <<END\nmake\nEND", 2, "heredocs are not supported"),
        ("FROM scratch\nUSER", 2, "USER needs an argument"),
        ("FROM a b", 1, "FROM needs an image"),
        ("# syntax=docker/dockerfile:1\nFROM scratch", 1, "directives are not supported"),
        ("FROM scratch\nRUN make \\", 2, "the last line ends with a backslash"),
        ("ARG =x\nFROM scratch", 1, "=x has no name"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(DockerfileInvalid, match=why) as caught:
        read_dockerfile(text, {})
    assert caught.value.line == line
    assert str(caught.value).startswith(f"Dockerfile, line {line}: ")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A", "one"),
        ("${A}b", "oneb"),
        ("$Ab", ""),
        ("'$A'", "$A"),
        ('"$A  $B"', "one  "),
        (r"\$A", "$A"),
        (r'"a\"b\c"', r'a"b\c'),
        (r"a\ b", "a b"),
        ("${A:-two}", "one"),
        ("${B:-two}", "two"),
        ("${B:-$A}", "one"),
        ("${A:+two}", "two"),
        ("${B:+two}", ""),
        ("it's' fine", "its fine"),
        ("5$", "5$"),
    ],
)
def test_variables_and_quotes_are_those_of_a_shell(text: str, expanded: str) -> None:
    assert expand(instruction(text), text, {"A": "one"}) == expanded


@pytest.mark.parametrize("text", ['"open', "'open", "${A", "${A:?must}", "${A#b}"])
def test_other_expansions_and_open_quotes_are_refused(text: str) -> None:
    with pytest.raises(DockerfileInvalid):
        expand(instruction(text), text, {})


def test_words_keep_spaces_in_quotes() -> None:
    given = instruction("""a "b c" 'd e' f\\ g "" $A""", Keyword.COPY)
    assert words(given, {"A": "h i"}) == ["a", "b c", "d e", "f g", "", "h i"]


def test_pairs_see_the_variables_before_their_instruction() -> None:
    given = instruction('A=1 B="$A $C" C=3')
    assert pairs(given, {"A": "0", "C": "9"}) == {"A": "1", "B": "0 9", "C": "3"}
    with pytest.raises(DockerfileInvalid, match="name is not NAME=VALUE"):
        pairs(instruction("name value"), {})


def test_arguments_have_their_given_value_or_their_default() -> None:
    given = instruction("A=1 B=2 C D", Keyword.ARG)
    values = argument_values(given, {}, {"B": "two", "C": "three", "unknown": "x"})
    assert values == {"A": "1", "B": "two", "C": "three"}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('["navarchos", "manager"]', ("navarchos", "manager")),
        ("make $A", ("/bin/sh", "-c", "make $A")),
        ("[ -e file ]", ("/bin/sh", "-c", "[ -e file ]")),
        ("[]", ("/bin/sh", "-c", "[]")),
        ("[1]", ("/bin/sh", "-c", "[1]")),
        ("1", ("/bin/sh", "-c", "1")),
    ],
)
def test_programs_have_a_list_or_a_shell(text: str, arguments: tuple[str, ...]) -> None:
    assert argument_list(instruction(text, Keyword.RUN)) == arguments


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("docs", True),
        ("docs/index.md", True),
        ("src", False),
        ("src/navarchos/clock.py", False),
        ("src/__pycache__", True),
        ("src/a/__pycache__/b.pyc", True),
        ("src/navarchos.egg-info/PKG-INFO", True),
        ("source", True),
        ("LICENSE", False),
        ("kept/a/b", False),
        ("kept/a/c", True),
        ("x1", False),
        ("x12", True),
    ],
)
def test_the_last_fitting_pattern_decides(tmp_path: Path, name: str, ignored: bool) -> None:
    (tmp_path / ".dockerignore").write_text(
        "# a comment\n*\n!src\n!LICENSE\n**/__pycache__\n**/*.egg-info\n\n!kept/*/b\n!x?\n"
    )
    assert is_ignored(name, read_ignore_file(tmp_path)) is ignored


def test_without_patterns_everything_is_copied(tmp_path: Path) -> None:
    assert read_ignore_file(tmp_path) == []
    assert not is_ignored("src", [])


def test_the_projects_dockerfile_is_understood() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    variables, stages = read_dockerfile(text, {"PYTHON_VERSION": "3.12"})
    assert variables == {"PYTHON_VERSION": "3.12"}
    assert [stage.name for stage in stages] == ["dependencies", "build", ""]
    assert {stage.base for stage in stages} == {"python:3.12-slim", "dependencies"}
    patterns = read_ignore_file(ROOT)
    assert not is_ignored("src/navarchos/clock.py", patterns)
    assert is_ignored("tests/conftest.py", patterns)
