import threading

import pytest

from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock


def test_a_token_keeps_the_first_reason() -> None:
    stop = StopToken()
    stop.stop("first")
    stop.stop("second")
    assert (stop.is_set(), stop.reason) == (True, "first")


def test_a_token_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="is_set"):
        bool(StopToken())


def test_a_child_stops_with_its_parent_and_for_its_reason() -> None:
    parent = StopToken()
    child = parent.child()
    parent.stop("shutdown")
    assert child.reason == "shutdown"


def test_stopping_a_child_does_not_affect_the_parent() -> None:
    parent = StopToken()
    parent.child().stop("done")
    assert not parent.is_set()


def test_a_stopped_child_is_forgotten_by_its_parent() -> None:
    parent = StopToken()
    for _ in range(100):
        parent.child().stop("done")
    assert parent._callbacks == {}


def test_a_callback_runs_once_even_when_it_comes_late() -> None:
    stop, calls = StopToken(), []
    stop.on_stop(lambda: calls.append("early"))
    stop.stop("now")
    stop.stop("again")
    stop.on_stop(lambda: calls.append("late"))
    assert calls == ["early", "late"]


def test_a_removed_callback_does_not_run() -> None:
    stop, calls = StopToken(), []
    withdraw = stop.on_stop(lambda: calls.append("ran"))
    withdraw()
    withdraw()
    stop.stop("now")
    assert calls == []


def test_a_callback_may_use_the_token_that_called_it() -> None:
    stop, seen = StopToken(), []
    stop.on_stop(lambda: seen.append(stop.reason))
    stop.stop("no deadlock")
    assert seen == ["no deadlock"]


def test_raise_if_set_carries_the_reason_past_except_exception() -> None:
    stop = StopToken()
    stop.raise_if_set()
    stop.stop("lease lost")
    with pytest.raises(Stopped) as caught:
        stop.raise_if_set()
    assert caught.value.reason == "lease lost"
    assert not isinstance(caught.value, Exception)


def test_waiting_ends_when_virtual_time_passes(fake_clock: FakeClock) -> None:
    stop, answers = StopToken(clock=fake_clock), []
    thread = threading.Thread(target=lambda: answers.append(stop.wait(5.0)))
    thread.start()
    fake_clock.settle(threads=1)
    fake_clock.advance(4.9)
    assert answers == []
    fake_clock.advance(0.2)
    thread.join()
    assert answers == [False]


def test_waiting_ends_when_the_token_is_set(fake_clock: FakeClock) -> None:
    stop, answers = StopToken(clock=fake_clock), []
    thread = threading.Thread(target=lambda: answers.append(stop.wait()))
    thread.start()
    fake_clock.settle(threads=1)
    stop.stop("now")
    thread.join()
    assert answers == [True]


def test_a_wait_of_zero_does_not_wait() -> None:
    assert StopToken().wait(0) is False
