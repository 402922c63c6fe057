"""The `navarchos` command."""

import signal
import sys
from typing import NoReturn

__all__ = ["main"]

USAGE_ERROR = 2
INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and exit with its status.

    Every refusal is one line on standard error. Ctrl-C never shows a traceback,
    not even while modules are still being imported.
    """
    previous = signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    from navarchos.cli.commands import run

    signal.signal(signal.SIGINT, previous)
    sys.exit(run(sys.argv[1:]))
