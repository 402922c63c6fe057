"""`python -m tests.rules [ST,FQ,…]`: what `make rules` runs.

Prints a line per section. Ends with 1 when a [core] rule of these sections is neither
pinned by a collected test nor listed in docs/rules-not-taken.md, and when the lists
contradict each other or the tests.
"""

import contextlib
import io
import sys
from pathlib import Path

import pytest
from tests.rules.book import Book, RulesError, read_ids, read_not_taken
from tests.rules.pins import Pins

_ROOT = Path(__file__).parents[2]


def main(sections: str) -> int:
    """Report on some sections, `ST,FQ`, or on all: an empty string."""
    try:
        levels = read_ids(_ROOT / "tests/rules/ids.txt")
        not_taken = read_not_taken(_ROOT / "docs/rules-not-taken.md")
        book = Book(levels, not_taken, _pins())
        names = [name.strip() for name in sections.split(",") if name.strip()] or book.sections()
        lines = [book.line(name) for name in names]
    except RulesError as error:
        sys.stderr.write(f"rules: {error}\n")
        return 1
    sys.stdout.write("\n".join(lines) + "\n")
    faults = book.mistakes()
    faults += [f"{r} is [core]: pin it, or give a reason" for r in book.missing(names)]
    sys.stderr.writelines(f"rules: {fault}\n" for fault in faults)
    return 1 if faults else 0


def _pins() -> dict[str, list[str]]:
    """What the tests of this project pin, those of a real control plane included."""
    pins = Pins()
    with contextlib.redirect_stdout(io.StringIO()):
        options = ["--collect-only", "-q", f"--rootdir={_ROOT}"]
        tests = [str(_ROOT / "tests")]
        ended = pytest.main([*options, "-c", str(_ROOT / "setup.cfg"), *tests], plugins=[pins])
    if pins.errors or ended != pytest.ExitCode.OK:
        raise RulesError("\n".join(pins.errors) or f"pytest ended with {ended!r}")
    return pins.tests


if __name__ == "__main__":
    sys.exit(main(",".join(sys.argv[1:])))
