"""Objects that were started before a fork raise after it instead of hanging."""

import os
import threading
from collections.abc import Callable

import pytest

from navarchos.errors import LifecycleError
from navarchos.stopping import StopToken
from navarchos.threads import ForkGuard, ThreadGroup

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_a_guard_refuses_only_started_objects_and_only_in_a_child(
    in_child: Callable[[Callable[[], object]], str],
) -> None:
    started, new = ForkGuard("the thing"), ForkGuard("another")
    started.start()
    started.check()
    new.check()
    said = in_child(started.check)
    assert said.startswith("Forked: the thing was started before this process was forked")
    assert in_child(new.check) == ""

    def start() -> None:
        new.start()
        new.check()

    assert in_child(start) == ""
    started.check()


@pytest.mark.rule("RT-31")
def test_a_thread_group_refuses_to_start_and_join_in_a_child_even_if_its_lock_is_held(
    in_child: Callable[[Callable[[], object]], str],
) -> None:
    stop = StopToken()
    group = ThreadGroup("workers", stop=stop)
    group.start("one", stop.wait)
    with group._ended:  # as if another thread held the lock during the fork
        assert "Forked" in in_child(group.join)
        assert "Forked" in in_child(lambda: group.start("two", lambda: None))
    stop.stop()
    assert group.join(20)


def test_a_new_group_can_be_used_in_a_child(
    in_child: Callable[[Callable[[], object]], str],
) -> None:
    stop = StopToken()
    group, ran = ThreadGroup("workers", stop=stop), threading.Event()

    def work() -> None:
        group.start("one", ran.set)
        assert ran.wait(20)
        assert group.join(20)

    assert in_child(work) == ""


def test_a_program_that_handles_lifecycle_errors_handles_a_fork(
    in_child: Callable[[Callable[[], object]], str],
) -> None:
    group = ThreadGroup("workers", stop=StopToken())
    group.start("one", lambda: None)
    assert group.join(20)

    def handled() -> None:
        with pytest.raises(LifecycleError, match="create and start another one here"):
            group.start("two", lambda: None)

    assert in_child(handled) == ""
