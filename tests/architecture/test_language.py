"""The project's prose is plain English: patterns that make it hard to read stay rare.

Prose is Markdown outside code blocks, docstrings, comments, and string literals of more than
one word. A ceiling is the highest rate of three well-written Python projects (httpx, kopf, trio),
in occurrences per 1,000 words. CONTRIBUTING.md explains what to write instead.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Pattern(NamedTuple):
    """A habit to avoid.

    Attributes:
        name: The habit, with examples.
        expression: What finds it in a line of prose.
        ceiling: Occurrences per 1,000 words that are accepted.
    """

    name: str
    expression: str
    ceiling: float


_BE = "(?:is|are|was|were)"
PATTERNS: Final = (
    Pattern("persons for parts", r"\b(?:some|no|any|every)body\b|\bpeople\b", 0.01),
    Pattern("whoever, whatever", r"\b(?:who|what|which)(?:so)?ever\b", 0.45),
    Pattern(
        "what is ... as a noun",
        r"(?<![?\w])\bwhat (?:is|was|are|were|has|had|it|they|he|there|comes?|goes?|stands?|waits?)"
        r"\b(?![^.\n]*\?)",
        0.29,
    ),
    Pattern(
        "those that, that of, who finds ... as a noun",
        r"\b(?:those|that) (?:that|who|of|in|from|whose)\b|\bthe one that\b"
        r"|(?:^|[.;:] )[Ww]ho (?:is|was|has|finds?|wants?|waits?|asks?|needs?|makes?|takes?"
        r"|reads?|writes?)\b",
        0.12,
    ),
    Pattern("tell, told", r"\b(?:tells?|told)\b", 0.24),
    Pattern("anew", r"\banew\b", 0.0),
    Pattern("bear, mend, heed", r"\b(?:bears?|borne|mends?|mended|heeds?)\b", 0.0),
    Pattern("is none, is no X", rf"\b{_BE} (?:none|nobody|nothing)\b|\bis no [a-z]+\b", 0.45),
    Pattern("is to be", rf"\b{_BE} to (?:be|have|go|come|stay|end|start|stop)\b", 0.1),
    Pattern("of its own", r"\bof (?:its|their|our|his|her) own\b|\bof (?:ours|theirs)\b", 0.03),
    Pattern(
        "go by, give back, let go, take up, work off",
        r"\b(?:goes?|going|went) by\b|\b(?:gives?|given|gave) (?:back|away)\b"
        r"|\blets? (?:it |them )?go\b|\b(?:takes?|took|taken) (?:it |them )?up\b|\bworks? off\b",
        0.1,
    ),
)
EXCEPTIONS: Final = frozenset(
    {
        "tests/architecture/test_language.py",  # names the patterns
        "tests/contract/test_rules.py",  # its texts are part of recorded answers
    }
)
"""Files that are not read, each with its reason: ten at most."""

CORPORA: Final = {
    "sources and documents": ("src", "docs", "benchmarks", "examples", "*.md"),
    "tests": ("tests",),
}


def markdown(text: str) -> Iterator[str]:
    """Return the lines of a page without code blocks and `code`."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        yield "" if is_code else re.sub(r"`[^`]*`", " ", line)


def python(text: str) -> Iterator[str]:
    """Return a line of prose, possibly empty, for each line of a module."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_sentence = token.type == tokenize.STRING and " " in token.string
        if is_sentence or token.type == tokenize.COMMENT:
            for offset, line in enumerate(token.string.splitlines()):
                lines[token.start[0] - 1 + offset] += re.sub(r"`[^`]*`|\{[^}]*\}", " ", line)
    yield from lines


@cache
def prose(corpus: str) -> tuple[tuple[str, int, str], ...]:
    """Return (file, line number, prose) of a corpus."""
    found = []
    for place in CORPORA[corpus]:
        folder = ROOT / place
        paths = sorted(folder.rglob("*") if folder.is_dir() else ROOT.glob(place))
        for path in paths:
            name = str(path.relative_to(ROOT))
            read = {".py": python, ".md": markdown}.get(path.suffix)
            if read is not None and name not in EXCEPTIONS:
                lines = enumerate(read(path.read_text(encoding="utf-8")), start=1)
                found += [(name, number, line) for number, line in lines if line.strip()]
    return tuple(found)


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_that_is_hard_to_read_stays_rare(pattern: Pattern, corpus: str) -> None:
    expression = re.compile(pattern.expression)
    places, words = [], 0
    for name, number, line in prose(corpus):
        words += len(re.findall(r"[A-Za-z']+", line))
        places += [f"{name}:{number}: {line.strip()}" for _ in expression.finditer(line)]
    assert words > 10_000
    rate = 1000 * len(places) / words
    assert rate <= pattern.ceiling, (
        f"{pattern.name}: {rate:.2f} per 1,000 words, at most {pattern.ceiling}:\n"
        + "\n".join(places[:40])
    )


def test_few_files_are_exempt() -> None:
    assert len(EXCEPTIONS) <= 10
    assert all((ROOT / name).exists() for name in EXCEPTIONS)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('"""Somebody waits."""\n', True),
        ("x = 1  # nobody waits\n", True),
        ('raise Error(f"{name}: nobody waits")\n', True),
        ("nobody = 1\n", False),
        ('x = "nobody"\n', False),
        ('"""The name `nobody` of a variable."""\n', False),
    ],
)
def test_docstrings_comments_and_sentences_are_prose(text: str, is_found: bool) -> None:
    lines = " ".join(python(text))
    assert bool(re.search(PATTERNS[0].expression, lines.lower())) is is_found
