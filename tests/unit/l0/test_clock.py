"""The system clock."""

import shutil
import subprocess
import sys
import time
from datetime import UTC, timedelta

import pytest

from navarchos.clock import SYSTEM_CLOCK

_DAY = 86_400


@pytest.mark.rule("RT-22")
def test_time_passes_while_the_machine_is_suspended() -> None:
    """A time namespace simulates a machine that was suspended for a day."""
    unshare = shutil.which("unshare")
    if unshare is None or sys.platform != "linux":
        pytest.skip("needs Linux and unshare")
    show = "from navarchos.clock import SYSTEM_CLOCK as c; print(c.monotonic())"
    suspended = [unshare, "--time", "--boottime", str(_DAY), sys.executable, "-c", show]
    done = subprocess.run(suspended, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "unshare" in done.stderr:
        pytest.skip(f"needs the right to make a time namespace: {done.stderr}")
    assert done.returncode == 0, done.stderr
    passed = float(done.stdout) - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert passed == pytest.approx(_DAY, abs=60)


def test_the_clock_advances_and_has_the_date() -> None:
    before, now = SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.now()
    assert SYSTEM_CLOCK.monotonic() > before
    assert now.utcoffset() == timedelta(0)
    assert SYSTEM_CLOCK.now().astimezone(UTC) >= now
