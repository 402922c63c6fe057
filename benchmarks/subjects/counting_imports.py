"""Count the modules that a statement loads.

python -m benchmarks.subjects.counting_imports STATEMENT
"""

import sys

from benchmarks.subjects.reporting import Reporter


def main() -> None:
    """Report the stage `imported`."""
    reporter = Reporter()
    before = set(sys.modules)
    exec(sys.argv[1], {})
    loaded = set(sys.modules) - before
    official = sum(name.split(".")[0] == "kubernetes" for name in loaded)
    reporter.end("imported", modules=len(loaded), official=official)


if __name__ == "__main__":
    main()
