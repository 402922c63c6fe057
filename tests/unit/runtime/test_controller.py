from collections.abc import Callable
from typing import Any

import pytest
import structlog
from tests.cases.waiting import wait_for
from tests.unit.runtime.conftest import Feed, Running, Script

from navarchos.client import Conflict, ServerError
from navarchos.client.status import Status
from navarchos.errors import (
    AlreadyStarted,
    AlreadyStopped,
    ConfigError,
    NavarchosError,
    NotStarted,
    Stopped,
    ThreadCrashed,
)
from navarchos.informers import SyncTimeout
from navarchos.instrument import Instruments
from navarchos.runtime import (
    DONE,
    Controller,
    ControllerOptions,
    ReconcileContext,
    Request,
    Result,
    TerminalError,
    current_reconcile,
)
from navarchos.runtime.sources import RequestQueue
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.workqueue import ItemExponential

A = Request("ns", "a")
Run = Callable[[Callable[[StopToken], object]], Running]


class Bench:
    """A controller with one feed, on virtual time."""

    def __init__(self, clock: FakeClock, run: Run) -> None:
        self.clock = clock
        self.feed = Feed()
        self.script = Script()
        self.instruments = Instruments()
        self._run = run

    def controller(self, **options: Any) -> Controller:
        options = {"limiter": ItemExponential[Request](1.0, 60.0), **options}
        kind = options.pop("kind", "")
        controller = Controller(
            "things",
            self.script,
            options=ControllerOptions(**options),
            kind=kind,
            clock=self.clock,
            instruments=self.instruments,
        )
        controller.watch(self.feed)
        return controller

    def start(self, **options: Any) -> tuple[Controller, Running]:
        controller = self.controller(**options)
        running = self._run(controller.run)
        self.clock.settle()
        return controller, running

    def send(self, *names: str, priority: int = 0) -> None:
        self.feed.send(*names, priority=priority)
        self.clock.settle()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.clock.settle()

    def metric(self, name: str, **labels: str) -> float | None:
        labels = {"controller": "things", **labels}
        return self.instruments.registry.get_sample_value(f"controller_runtime_{name}", labels)

    @property
    def names(self) -> list[str]:
        return [request.name for request in self.script.calls]


@pytest.fixture
def bench(fake_clock: FakeClock, run: Run) -> Bench:
    return Bench(fake_clock, run)


@pytest.mark.rule("CT-09")
def test_delivered_requests_are_reconciled(bench: Bench) -> None:
    bench.start()
    bench.send("a", "b")
    assert bench.names == ["a", "b"]


@pytest.mark.rule("CT-01")
@pytest.mark.parametrize("options", [{"workers": 0}, {"workers_by_kind": {"Node": 0}}])
def test_a_controller_without_workers_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a controller requires at least one worker"):
        ControllerOptions(**options)


@pytest.mark.rule("CT-01")
def test_a_controller_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="requires a name"):
        Controller("", Script())


@pytest.mark.rule("CT-04")
def test_workers_start_only_after_every_source_has_synced(bench: Bench) -> None:
    late = Feed(synced=False)
    controller = bench.controller()
    controller.watch(late)
    running = bench._run(controller.run)
    bench.clock.settle()
    bench.send("a")
    assert bench.names == []
    bench.advance(119)
    assert bench.names == []
    late.synced.stop()
    bench.clock.settle()
    assert bench.names == ["a"]
    assert running.end() is None


@pytest.mark.rule("CT-04")
def test_a_second_run_is_an_error(bench: Bench) -> None:
    controller, _ = bench.start()
    with pytest.raises(AlreadyStarted):
        controller.run(StopToken())


@pytest.mark.rule("CT-05")
def test_a_source_that_does_not_sync_is_named(bench: Bench) -> None:
    bench.feed = Feed(synced=False, name="things.example.org")
    _, running = bench.start(cache_sync_timeout=10)
    bench.advance(10)
    running.join()
    assert isinstance(running.error, SyncTimeout)
    assert running.error.unsynced == ("things.example.org of controller things",)


@pytest.mark.rule("CT-05")
def test_a_stop_during_sync_is_not_an_error(bench: Bench) -> None:
    bench.feed = Feed(synced=False)
    _, running = bench.start()
    assert running.end() is None
    assert bench.feed.stops == 1


class Gated(Feed):
    """A source whose start does not return until a gate is opened."""

    def __init__(self, clock: FakeClock, name: str = "gated") -> None:
        super().__init__(name=name)
        self.gate = StopToken(clock=clock)

    def start(self, requests: RequestQueue) -> None:
        self.gate.wait()
        super().start(requests)


@pytest.mark.rule("CT-04")
def test_sources_start_and_sync_side_by_side(bench: Bench) -> None:
    slow = Gated(bench.clock)
    controller = bench.controller()
    controller.watch(slow)
    after = Feed()
    controller.watch(after)
    bench._run(controller.run)
    bench.clock.settle()
    assert (bench.feed.starts, after.starts) == (1, 1)
    bench.send("a")
    assert bench.names == []
    slow.gate.stop()
    bench.clock.settle()
    assert bench.names == ["a"]


@pytest.mark.rule("CT-05")
def test_a_source_whose_start_blocks_is_a_separate_error(bench: Bench) -> None:
    bench.feed = Gated(bench.clock, name="stuck")
    _, running = bench.start(cache_sync_timeout=10)
    bench.clock.advance(10)
    running.join()
    assert isinstance(running.error, SyncTimeout)
    assert running.error.unsynced == ("stuck of controller things, whose start has not returned",)
    bench.feed.gate.stop()
    bench.clock.settle()
    assert (bench.feed.starts, bench.feed.stops) == (1, 1)  # it is not left on


def test_a_source_whose_start_fails_ends_the_controller_with_that_error(bench: Bench) -> None:
    class Broken(Feed):
        def start(self, requests: RequestQueue) -> None:
            raise ZeroDivisionError

    controller = bench.controller()
    controller.watch(Broken())
    running = bench._run(controller.run).join()
    assert isinstance(running.error, ZeroDivisionError)
    # One whose start was under way when the other's failed is stopped as soon as it returns.
    wait_for("the other's end", lambda: bench.feed.stops == bench.feed.starts)


@pytest.mark.rule("CT-06")
@pytest.mark.rule("CT-08")
def test_sources_start_once_though_warm_up_and_run_come_together(bench: Bench) -> None:
    bench.feed = Feed(synced=False)
    controller = bench.controller()
    stop = StopToken(clock=bench.clock)
    warm = [bench._run(lambda _: controller.warm_up(stop)) for _ in range(2)]
    running = bench._run(controller.run)
    bench.clock.settle()
    later = Feed()
    controller.watch(later)
    bench.feed.synced.stop()
    bench.clock.settle()
    bench.send("a")
    later.send("b")
    bench.clock.settle()
    assert (bench.feed.starts, later.starts) == (1, 1)
    assert bench.names == ["a", "b"]
    assert [each.join().error for each in warm] == [None, None]
    assert running.end() is None
    assert (bench.feed.stops, later.stops) == (1, 1)


@pytest.mark.rule("CT-08")
def test_a_warm_up_feeds_the_queue_and_reconciles_nothing(bench: Bench) -> None:
    controller = bench.controller()
    bench._run(controller.warm_up).join()
    bench.send("a", "b")
    assert (bench.names, len(controller.queue)) == ([], 2)
    running = bench._run(controller.run)
    bench.clock.settle()
    assert bench.names == ["a", "b"]
    assert running.end() is None


@pytest.mark.rule("CT-08")
def test_a_warm_up_can_be_closed_without_a_run(
    new_threads: Callable[[], list[str]], bench: Bench
) -> None:
    controller = bench.controller()
    bench._run(controller.warm_up).join()
    controller.queue.add(A, after=60)
    controller.close()
    controller.close()
    assert bench.feed.stops == 1
    assert new_threads() == []


@pytest.mark.rule("CT-03")
def test_a_controller_leaves_no_thread_behind(
    new_threads: Callable[[], list[str]], bench: Bench
) -> None:
    _, running = bench.start(workers=3, reconcile_timeout=10)
    bench.script.answers = [Result(requeue_after=60)]
    bench.send("a")
    assert running.end() is None
    assert new_threads() == []


def test_many_events_of_a_key_give_one_reconcile_after_the_debounce(bench: Bench) -> None:
    bench.start(debounce=2)
    for _ in range(10):
        bench.send("a", "b")
        bench.advance(0.19)
    assert bench.names == []
    bench.advance(0.2)
    assert bench.names == ["a", "b"]
    bench.advance(10)
    assert bench.names == ["a", "b"]


def test_a_key_that_changes_all_the_time_is_still_reconciled(bench: Bench) -> None:
    bench.start(debounce=2)
    for _ in range(100):
        bench.send("a")
        bench.advance(0.1)
    assert 4 <= len(bench.names) <= 5


def test_events_during_a_reconcile_are_debounced_as_well(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.before = lambda _: gate.wait()
    bench.start(debounce=2)
    bench.send("a")
    bench.advance(2)
    assert bench.names == ["a"]
    bench.send("a")
    bench.advance(1)
    gate.stop()
    bench.clock.settle()
    assert bench.names == ["a"]
    bench.send("a")
    bench.advance(1)
    assert bench.names == ["a", "a"]
    bench.advance(10)
    assert bench.names == ["a", "a"]


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_debounce_must_be_a_wait(seconds: float) -> None:
    with pytest.raises(ConfigError, match="debounce"):
        ControllerOptions(debounce=seconds)


@pytest.mark.rule("CT-06")
def test_a_source_given_later_starts_at_once(bench: Bench) -> None:
    controller, running = bench.start()
    later = Feed()
    controller.watch(later)
    later.send("b")
    bench.clock.settle()
    assert bench.names == ["b"]
    assert (bench.feed.starts, later.starts) == (1, 1)
    running.end()
    assert (bench.feed.stops, later.stops) == (1, 1)
    with pytest.raises(AlreadyStopped):
        controller.watch(Feed())


@pytest.mark.rule("CT-07")
def test_a_stop_waits_for_the_current_key_and_starts_no_other(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.before = lambda _: gate.wait()
    _, running = bench.start()
    bench.send("a", "b")
    running.stop.stop()
    bench.clock.settle()
    assert bench.metric("active_workers") == 1
    gate.stop()
    assert running.join().error is None
    assert bench.names == ["a"]
    assert bench.metric("active_workers") == 0


@pytest.mark.rule("CT-09")
def test_one_key_is_never_with_two_workers_and_others_go_on(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.before = lambda request: request == A and gate.wait()
    bench.start(workers=2)
    bench.send("a", "a")
    bench.send("a")
    bench.send("b", "c")
    assert bench.names == ["a", "b", "c"]
    gate.stop()
    bench.clock.settle()
    assert bench.names == ["a", "b", "c", "a"]


@pytest.mark.rule("CT-11")
def test_an_error_is_tried_again_with_growing_pauses(bench: Bench) -> None:
    bench.script.answers = [NavarchosError("no")] * 3
    controller, _ = bench.start()
    bench.send("a")
    for pause, calls in ((1, 2), (2, 3), (4, 4)):
        bench.advance(pause - 0.5)
        assert len(bench.names) == calls - 1
        bench.advance(0.5)
        assert len(bench.names) == calls
    assert controller.queue.num_requeues(A) == 0


@pytest.mark.rule("CT-11")
def test_an_error_keeps_the_priority_of_its_key(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.answers = [NavarchosError("no")]
    bench.start()
    bench.send("a", priority=5)
    bench.script.before = lambda _: gate.wait()
    bench.send("busy")
    bench.send("b")
    bench.advance(1)
    gate.stop()
    bench.clock.settle()
    assert bench.names == ["a", "busy", "a", "b"]


@pytest.mark.rule("CT-12")
def test_a_terminal_error_is_not_tried_again(bench: Bench) -> None:
    bench.script.answers = [TerminalError("selector matches nothing")]
    bench.start()
    bench.send("a")
    bench.advance(10_000)
    assert bench.names == ["a"]
    assert bench.metric("terminal_reconcile_errors_total") == 1
    assert bench.metric("reconcile_errors_total") == 1
    assert bench.metric("reconcile_total", result="error") == 1


@pytest.mark.rule("CT-13")
def test_requeue_after_does_not_count_as_a_failure(bench: Bench) -> None:
    bench.script.answers = [NavarchosError("no"), Result(requeue_after=30, requeue=True)]
    controller, _ = bench.start()
    bench.send("a")
    bench.advance(1)
    assert controller.queue.num_requeues(A) == 0
    bench.advance(29)
    assert len(bench.names) == 2
    bench.advance(1)
    assert len(bench.names) == 3


@pytest.mark.rule("CT-13")
def test_a_plain_requeue_backs_off_and_does_not_reset(bench: Bench) -> None:
    bench.script.answers = [NavarchosError("no"), Result(requeue=True)]
    controller, _ = bench.start()
    bench.send("a")
    bench.advance(1)
    assert controller.queue.num_requeues(A) == 2
    bench.advance(2)
    assert len(bench.names) == 3
    assert controller.queue.num_requeues(A) == 0


@pytest.mark.rule("CT-14")
def test_a_result_may_change_the_priority(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.answers = [Result(requeue_after=1, priority=9)]
    bench.start()
    bench.send("a", priority=-100)
    bench.script.before = lambda _: gate.wait()
    bench.send("busy")
    bench.send("b")
    bench.advance(1)
    gate.stop()
    bench.clock.settle()
    assert bench.names == ["a", "busy", "a", "b"]


@pytest.mark.rule("CT-10")
def test_a_panic_counts_as_one_and_is_tried_again(bench: Bench) -> None:
    bench.script.answers = [ZeroDivisionError()]
    bench.start()
    bench.send("a")
    assert bench.metric("reconcile_panics_total") == 1
    bench.advance(1)
    assert bench.names == ["a", "a"]


@pytest.mark.rule("CT-10")
def test_without_recovery_a_panic_ends_the_controller_and_every_worker(bench: Bench) -> None:
    bench.script.answers = [ZeroDivisionError()]
    _, running = bench.start(recover=False, workers=3)
    bench.feed.send("a")
    running.join()
    assert isinstance(running.error, ThreadCrashed)
    assert isinstance(running.error.__cause__, ZeroDivisionError)


def test_a_navarchos_error_does_not_count_as_a_panic(bench: Bench) -> None:
    bench.script.answers = [NavarchosError("expected")]
    _, running = bench.start(recover=False)
    bench.send("a")
    assert bench.metric("reconcile_panics_total") == 0
    assert running.end() is None


def test_a_forgotten_result_is_an_error(bench: Bench) -> None:
    bench.script.answers = [None]
    bench.start()
    with structlog.testing.capture_logs() as logs:
        bench.send("a")
    (line,) = [line for line in logs if line["event"] == "reconcile_failed"]
    assert "return DONE" in str(line["exc_info"])
    assert bench.metric("reconcile_total", result="error") == 1


def test_stopped_while_stopping_is_not_an_error(bench: Bench) -> None:
    controller, running = bench.start()
    bench.script.before = lambda _: running.stop.wait()
    bench.script.answers = [Stopped("the controller stops")]
    bench.send("a")
    assert running.end() is None
    assert bench.metric("reconcile_errors_total") == 0
    assert controller.queue.num_requeues(A) == 0


def test_stopped_for_another_reason_does_not_lose_the_key(bench: Bench) -> None:
    bench.script.answers = [Stopped("a client was closed")]
    bench.start()
    bench.send("a")
    assert bench.metric("reconcile_errors_total") == 1
    bench.advance(1)
    assert bench.names == ["a", "a"]


def logged(bench: Bench, error: BaseException) -> dict[str, Any]:
    bench.script.answers = [error]
    with structlog.testing.capture_logs() as logs:
        bench.send("a")
    (line,) = [line for line in logs if line["event"].startswith("reconcile")]
    return dict(line)


def test_errors_are_logged_once_at_the_level_they_deserve(bench: Bench) -> None:
    bench.start()
    conflict = Conflict(Status(code=409, reason="Conflict", message="changed"))
    refused = ServerError(Status(code=500, reason="InternalError", message="down"))
    assert logged(bench, conflict)["log_level"] == "debug"
    assert logged(bench, refused)["log_level"] == "warning"
    line = logged(bench, ZeroDivisionError("odd"))
    assert (line["log_level"], line["attempt"]) == ("error", 3)
    assert isinstance(line["exc_info"], ZeroDivisionError)


@pytest.mark.rule("CT-16")
def test_every_line_of_a_reconcile_carries_its_id(bench: Bench) -> None:
    bench.start(kind="Thing")
    bench.send("a", "b")
    first, second = bench.script.log_context
    expected = {"controller": "things", "kind": "Thing", "namespace": "ns", "name": "a"}
    assert {key: first[key] for key in expected} == expected
    assert first["reconcile_id"] != second["reconcile_id"]


@pytest.mark.rule("CT-16")
def test_current_reconcile_returns_the_running_reconcile(bench: Bench) -> None:
    seen: list[ReconcileContext] = []
    bench.script.before = lambda _: seen.append(current_reconcile())
    bench.start(kind="Thing")
    bench.send("a")
    (opened,) = seen
    assert (opened.controller, opened.kind, opened.request) == ("things", "Thing", A)
    assert opened.id == bench.script.log_context[0]["reconcile_id"]
    assert (opened.deadline, opened.time_left()) == (None, None)
    assert opened.stop.reason == "the reconcile has ended"
    with pytest.raises(NotStarted):
        current_reconcile()


@pytest.mark.rule("CT-15")
def test_a_reconcile_that_exceeds_its_time_limit_is_stopped_and_requeued(bench: Bench) -> None:
    left: list[float | None] = []

    def obedient(_: Request) -> None:
        left.append(current_reconcile().time_left())
        current_reconcile().stop.wait()
        current_reconcile().stop.raise_if_set()

    bench.script.before = obedient
    _, running = bench.start(reconcile_timeout=10)
    bench.send("a")
    bench.advance(9)
    assert bench.metric("active_workers") == 1
    bench.script.before = lambda _: None
    with structlog.testing.capture_logs() as logs:
        bench.advance(1)
    (line,) = [line for line in logs if line["event"] == "reconcile_failed"]
    assert str(line["exc_info"]) == "stopped: took longer than 10 s"
    assert left == [10.0]
    assert bench.metric("reconcile_timeouts_total") == 1
    assert bench.metric("reconcile_errors_total") == 1
    assert bench.metric("reconcile_panics_total") == 0
    bench.advance(1)
    assert bench.names == ["a", "a"]
    assert bench.metric("reconcile_timeouts_total") == 1
    assert running.end() is None


@pytest.mark.rule("CT-15")
def test_a_stop_of_the_controller_does_not_count_as_a_timeout(bench: Bench) -> None:
    bench.script.before = lambda _: current_reconcile().stop.wait()
    _, running = bench.start(reconcile_timeout=10)
    bench.send("a")
    assert running.end() is None
    assert bench.metric("reconcile_timeouts_total") == 0


def test_a_time_limit_must_leave_time() -> None:
    with pytest.raises(ConfigError, match="reconcile_timeout"):
        ControllerOptions(reconcile_timeout=0)


@pytest.mark.rule("MT-02")
def test_each_reconcile_counts_once(bench: Bench) -> None:
    bench.script.answers = [DONE, Result(requeue=True), Result(requeue_after=1), Result(0.0)]
    bench.start()
    bench.send("a", "b", "c", "d")
    for result, count in (("success", 2), ("requeue", 1), ("requeue_after", 1), ("error", 0)):
        assert bench.metric("reconcile_total", result=result) == count
    assert bench.metric("reconcile_time_seconds_count") == 4


@pytest.mark.rule("MT-03")
def test_failures_are_counted_by_what_they_are(bench: Bench) -> None:
    def obedient(request: Request) -> None:
        if request.name == "slow":
            current_reconcile().stop.wait()
            current_reconcile().stop.raise_if_set()

    bench.script.before = obedient
    bench.script.answers = [
        NavarchosError("no"),
        TerminalError("never"),
        ZeroDivisionError(),
        DONE,
        Result(requeue=True),
    ]
    _, running = bench.start(reconcile_timeout=10, limiter=ItemExponential(1e6, 1e6))
    bench.send("error", "terminal", "panic", "fine", "again", "slow")
    bench.advance(10)
    counts = {
        name: bench.metric(f"{name}_total")
        for name in (
            "reconcile_errors",
            "terminal_reconcile_errors",
            "reconcile_panics",
            "reconcile_timeouts",
        )
    }
    assert counts == {
        "reconcile_errors": 4,  # the terminal one, the panic and the timeout included
        "terminal_reconcile_errors": 1,
        "reconcile_panics": 1,
        "reconcile_timeouts": 1,
    }
    assert running.end() is None


BOUNDS = """.005 .01 .025 .05 .1 .15 .2 .25 .3 .35 .4 .45 .5 .6 .7 .8 .9 1 1.25 1.5 1.75 2 2.5 3
    3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60"""


@pytest.mark.rule("MT-04")
def test_reconciles_are_timed_in_the_buckets_that_dashboards_know(bench: Bench) -> None:
    gate = StopToken(clock=bench.clock)
    bench.script.before = lambda _: gate.wait()
    bench.start()
    bench.send("a")
    bench.advance(1.1)
    gate.stop()
    bench.clock.settle()
    (family,) = [
        family
        for family in bench.instruments.registry.collect()
        if family.name == "controller_runtime_reconcile_time_seconds"
    ]
    counts = {
        float(sample.labels["le"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    bounds = [float(bound) for bound in BOUNDS.split()]
    assert list(counts) == [*bounds, float("inf")]
    assert [bound for bound, count in counts.items() if count == 0] == bounds[: bounds.index(1.25)]
    assert bench.metric("reconcile_time_seconds_sum") == pytest.approx(1.1)


@pytest.mark.rule("MT-05")
def test_every_series_exists_before_the_start(bench: Bench) -> None:
    bench.controller(workers=3)
    assert bench.metric("max_concurrent_reconciles") == 3
    names = ["active_workers", "reconcile_time_seconds_count"] + [
        f"{name}_total"
        for name in (
            "reconcile_errors",
            "terminal_reconcile_errors",
            "reconcile_panics",
            "reconcile_timeouts",
        )
    ]
    assert [bench.metric(name) for name in names] == [0] * len(names)
    results = ("success", "error", "requeue", "requeue_after")
    assert [bench.metric("reconcile_total", result=result) for result in results] == [0] * 4
    assert bench.metric("reconcile_time_seconds_bucket", le="0.005") == 0
    assert bench.metric("reconcile_time_seconds_bucket", le="60.0") == 0
    queue = {"name": "things", "controller": "things"}
    assert bench.instruments.registry.get_sample_value("workqueue_adds_total", queue) == 0


@pytest.mark.rule("CT-03")
def test_a_controller_that_never_ran_needs_no_end(bench: Bench) -> None:
    bench.controller()
    assert bench.feed.starts == 0


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_wait_must_be_one(seconds: float) -> None:
    with pytest.raises(ConfigError, match="requeue_after"):
        Result(requeue_after=seconds)
