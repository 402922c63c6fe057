"""How often randomized tests run: one switch for all of them.

`NAVARCHOS_SEEDS=10000` makes a test with seeds of its own run as many, and a
hypothesis test as many examples, whatever their usual number; `make nightly` does
that. Tests in real time run fewer. Whatever fails names its seed: as the test's
parameter, in its message, or as hypothesis' blob.
"""

import os

__all__ = ["runs"]


def runs(usual: int, *, at_most: int | None = None) -> int:
    """Return how many runs a randomized test is to make.

    Args:
        usual: Without the switch.
        at_most: With it, for tests whose runs take real time.
    """
    wanted = int(os.environ.get("NAVARCHOS_SEEDS", usual))
    return wanted if at_most is None else min(wanted, max(usual, at_most))
