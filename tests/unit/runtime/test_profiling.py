"""Pages that show what threads do."""

import threading
from collections.abc import Iterator

import pytest

from navarchos.clock import SYSTEM_CLOCK
from navarchos.runtime.endpoints import Profiling
from navarchos.stopping import StopToken

THREAD = "a thread; waiting"


@pytest.fixture
def stop() -> StopToken:
    return StopToken()


@pytest.fixture
def profiling(stop: StopToken) -> Profiling:
    return Profiling(stop, SYSTEM_CLOCK)


@pytest.fixture(autouse=True)
def somebody() -> Iterator[None]:
    gate, entered = threading.Event(), threading.Event()

    def waits_for_the_gate() -> None:
        entered.set()
        gate.wait(20)

    thread = threading.Thread(target=waits_for_the_gate, name=THREAD)
    thread.start()
    assert entered.wait(20)
    yield
    gate.set()
    thread.join()


@pytest.mark.rule("MG-17")
def test_stacks_name_each_thread_and_where_it_is(profiling: Profiling) -> None:
    answer = profiling.route("/debug/threads", {})
    assert answer.status == 200
    _, _, after = answer.body.decode().partition(f"{THREAD}\n")
    assert "in waits_for_the_gate" in after.partition("\n\n")[0]


@pytest.mark.rule("MG-17")
def test_a_profile_counts_folded_stacks(profiling: Profiling) -> None:
    answer = profiling.route("/debug/profile", {"seconds": ["0.2"]})
    assert answer.status == 200
    counts = {
        stack: int(count)
        for stack, _, count in (line.rpartition(" ") for line in answer.body.decode().splitlines())
    }
    (ours,) = [stack for stack in counts if "waits_for_the_gate" in stack]
    assert ours.startswith("a thread, waiting;threading.Thread._bootstrap;")
    assert ours.endswith("threading.Condition.wait")
    # Threads with equal stacks are counted together: a pool may have more of them than this test.
    assert 1 < counts[ours] <= max(counts.values())
    assert not any("_sample" in stack for stack in counts), "who looks is not seen"


@pytest.mark.rule("MG-17")
def test_one_profile_at_a_time(profiling: Profiling, stop: StopToken) -> None:
    def both() -> set[int]:
        statuses = []
        first = threading.Thread(
            target=lambda: statuses.append(profiling.route("/debug/profile", {}).status)
        )
        first.start()
        while (second := profiling.route("/debug/profile", {"seconds": ["0.01"]})).status != 409:
            assert first.is_alive()
        stop.stop("the manager stops")
        first.join(5)
        return {*statuses, second.status}

    assert both() == {200, 409}
    assert profiling.route("/debug/profile", {}).status == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "61", "nan", "x", ""])
def test_an_invalid_profile_time_is_refused(profiling: Profiling, seconds: str) -> None:
    assert profiling.route("/debug/profile", {"seconds": [seconds]}).status == 400


def test_other_paths_return_the_index(profiling: Profiling) -> None:
    assert [profiling.route(path, {}).status for path in ("/", "/debug/", "/else")] == [
        200,
        200,
        404,
    ]
