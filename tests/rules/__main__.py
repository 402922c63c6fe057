"""`python -m tests.rules [ST,FQ,…]`: the program behind `make rules`.

Prints a line per section. Ends with 1 when a rule of these sections is neither pinned by a
collected test nor marked as not taken in docs/spec (rules of the level note excepted), when
a test pins a rule that docs/spec does not have, and when docs/spec cannot be read.
"""

import contextlib
import io
import sys
from pathlib import Path

import pytest
from tests.rules.book import Book, RulesError, read_rules
from tests.rules.pins import Pins

_ROOT = Path(__file__).parents[2]


def main(sections: str) -> int:
    """Report on some sections, such as `ST,FQ`, or on all: an empty string."""
    try:
        book = Book(read_rules(_ROOT / "docs/spec"), _pins())
        names = [name.strip() for name in sections.split(",") if name.strip()] or book.sections()
        lines = [book.line(name) for name in names]
    except RulesError as error:
        sys.stderr.write(f"rules: {error}\n")
        return 1
    sys.stdout.write("\n".join(lines) + "\n")
    faults = book.mistakes()
    faults += [
        f"{r} is not pinned by any test: pin it, or state in docs/spec why it is not taken"
        for r in book.missing(names)
    ]
    sys.stderr.writelines(f"rules: {fault}\n" for fault in faults)
    return 1 if faults else 0


def _pins() -> dict[str, list[str]]:
    """Collect the pins of all tests, including tests that need a real control plane."""
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
