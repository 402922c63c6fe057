"""The entry point of the `navarchos` command.

It imports almost nothing, so that Ctrl-C is handled before the slow imports begin.
"""

import signal
import sys
from pathlib import PurePath
from typing import Final, NoReturn

from navarchos.cli.errors import ExitStatus

__all__ = ["main"]

_PLUGIN: Final = "kubectl-navarchos"
"""kubectl runs the executable with this name on the PATH for `kubectl navarchos`."""


def main() -> NoReturn:
    """Run the command line and exit with its status.

    An error is one line on standard error. Ctrl-C never shows a traceback, also while
    modules are still being imported.
    """
    previous = signal.signal(signal.SIGINT, lambda *_: sys.exit(ExitStatus.INTERRUPTED))
    from navarchos.cli.commands import run

    signal.signal(signal.SIGINT, previous)
    is_plugin = PurePath(sys.argv[0]).stem == _PLUGIN
    sys.exit(run(sys.argv[1:], name="kubectl navarchos" if is_plugin else "navarchos"))
