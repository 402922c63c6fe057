"""The number of runs of randomized tests: one switch for all of them.

With `NAVARCHOS_SEEDS=10000` every seeded test makes 10,000 runs and every Hypothesis test
10,000 examples, as in `make nightly`. Tests in real time run fewer. A failure names its
seed: as the test's parameter, in its message, or as Hypothesis' blob.
"""

import os

__all__ = ["runs"]


def runs(usual: int, *, at_most: int | None = None) -> int:
    """Return the number of runs of a randomized test.

    Args:
        usual: The number without the switch.
        at_most: The maximum with the switch, for tests whose runs take real time.
    """
    wanted = int(os.environ.get("NAVARCHOS_SEEDS", usual))
    return wanted if at_most is None else min(wanted, max(usual, at_most))
