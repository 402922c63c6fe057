"""Faults of the operator's requests, decided by a seed."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.model.judging import Judge
from tests.model.leading import LEASES, is_guarded
from tests.model.scheduling import Killed, Process, Scheduler
from tests.model.serving import Cut, Lost, TooSlow

from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.requests import Request
from navarchos.testing.apiserver.status import StatusError

__all__ = ["Shaken", "Trace"]

_CODES: Final = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError",
                 503: "ServiceUnavailable"}  # fmt: skip


class Trace:
    """The trace of a run, one line per event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.lines: list[str] = []
        self._scheduler = scheduler

    def add(self, who: str, what: str) -> None:
        """Write a line."""
        self.lines.append(f"{self._scheduler.seconds:9.3f} {who:<11} {what}")


class Shaken:
    """Random faults, while `rate` is above 0, and faults on request.

    Attributes:
        rate: The probability that a request fails.
        refuses_evictions: An admission webhook denies all of them.
        most_lag: The longest time for which a watch delivers nothing; 0 for none.
        kill_before: The process, and the number of its request before which it dies.
        kill_after: The process, and the number of its request whose answer it does not see.
        on_kill: Called with the process that dies.
        requests: The number of requests of each process.
        writes: The number of writes other than to events and the Lease. Events do not
            count, because a series is finished minutes later.
    """

    def __init__(
        self, scheduler: Scheduler, rand: random.Random, trace: Trace, judge: Judge
    ) -> None:
        self.rate = 0.0
        self.refuses_evictions = False
        self.most_lag = 0.0
        self.kill_before: tuple[str, int] | None = None
        self.kill_after: tuple[str, int] | None = None
        self.on_kill: Callable[[Process], None] = _nothing
        self.requests: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self._held: dict[tuple[str, str], float] = {}
        self._silent: dict[Process, tuple[float, bool]] = {}
        self._scheduler = scheduler
        self._rand = rand
        self._trace = trace
        self._judge = judge

    def leaving(self, process: Process, call: ApiCall) -> None:
        """See a request that leaves its process."""
        self._judge.lease.about_to_write(process, call)

    def before(self, process: Process, call: ApiCall, asked: Request) -> None:
        """See a request that is about to be served."""
        self.requests[process.name] += 1
        number = self.requests[process.name]
        what = _words(call, asked)
        self.writes[process.name] += is_guarded(call)
        self._judge_eviction(call, asked)
        if self.kill_before == (process.name, number):
            self._kill(process, f"killed before #{number} {what}")
        if call.verb == "evict" and self.refuses_evictions:
            self._trace.add(process.name, f"#{number} {what}: denied by a webhook")
            text = 'admission webhook "model" denied the request: not now'
            raise StatusError(self._rand.choice([400, 403, 500]), "", text)
        if self._is_silent(process, call) and self._rand.random() < 0.5:
            self._trace.add(process.name, f"#{number} {what}: never arrives")
            raise TooSlow
        self._shake(process, call, f"#{number} {what}")
        self._judge.lease.about_to_write(process, call)
        if call.resource != LEASES:  # it would fill the trace
            self._trace.add(process.name, f"#{number} {what}")

    def after(self, process: Process, call: ApiCall) -> None:
        """See a request that has been served."""
        number = self.requests[process.name]
        if self.kill_after == (process.name, number):
            self._kill(process, f"killed after #{number}, whose answer is lost")
        if self._is_silent(process, call):
            self._trace.add(process.name, f"no answer to {call.verb} {call.resource}")
            raise TooSlow
        if self.rate and self._rand.random() < self.rate / 4:
            self._judge.disturbed(self._scheduler.seconds + 30.0)
            self._trace.add(process.name, f"the answer to {call.verb} {call.resource} is lost")
            raise self._rand.choice([Lost, TooSlow])

    def silence(self, process: Process, seconds: float, *, only_leases: bool) -> None:
        """Let requests of a process get no answer; some of them arrive."""
        until = self._scheduler.seconds + seconds
        self._silent[process] = (until, only_leases)
        self._judge.disturbed(until + 30.0)

    def latency(self) -> float:
        """Return the seconds that half a request takes."""
        return self._rand.uniform(0.0005, 0.02)

    def held_until(self, process: Process, resource: str) -> float:
        """Return the time until which a watch delivers nothing."""
        now = self._scheduler.seconds
        held = self._held.get((process.name, resource), 0.0)
        if self.most_lag and now >= held and self._rand.random() < 0.02:
            held = now + self._rand.uniform(0.5, self.most_lag)
            self._held[process.name, resource] = held
            self._judge.disturbed(held)
            self._trace.add(process.name, f"its watches of {resource} lag until {held:.1f}")
        return held

    def heal(self) -> None:
        """End all faults."""
        self.rate = self.most_lag = 0.0
        self.refuses_evictions = False
        self._held.clear()
        self._silent.clear()

    def _is_silent(self, process: Process, call: ApiCall) -> bool:
        until, only_leases = self._silent.get(process, (0.0, False))
        if self._scheduler.seconds >= until or call.verb == "watch":
            return False
        return call.resource == LEASES or not only_leases

    def _shake(self, process: Process, call: ApiCall, what: str) -> None:
        if not self.rate or self._rand.random() >= self.rate:
            return
        self._judge.disturbed(self._scheduler.seconds + 2.0)
        codes = [429, 500, 503]
        if call.verb in {"list", "watch"}:
            codes.append(410)
        elif call.verb in {"patch", "update"}:
            codes.append(409)
        code = self._rand.choice([0, *codes])
        self._trace.add(process.name, f"{what}: {code or 'cut'}")
        if not code:
            raise Cut
        wait = self._rand.choice([0, 1]) if code in {429, 503} else 0
        details = {"retryAfterSeconds": wait} if wait else None
        raise StatusError(code, _CODES[code], "by the model", details=details, retry_after=wait)

    def _judge_eviction(self, call: ApiCall, asked: Request) -> None:
        is_deletion = call.verb == "delete" and call.resource == "pods"
        if call.target is not None and (call.verb == "evict" or is_deletion):
            body: Any = msgspec.json.decode(asked.body) if asked.body else {}
            self._judge.about_to_evict(call.target.namespace, call.name, body, call.verb)

    def _kill(self, process: Process, why: str) -> None:
        self._trace.add(process.name, why)
        self._judge.disturbed()
        self.on_kill(process)
        raise Killed


def _words(call: ApiCall, asked: Request) -> str:
    target = call.target
    if target is None:
        return f"{call.verb} {asked.path}"
    where = f"{target.namespace}/" if target.namespace else ""
    sub = f"/{target.subresource}" if target.subresource else ""
    body = asked.body.decode(errors="replace") if call.verb == "patch" else ""
    return f"{call.verb} {call.resource}{sub} {where}{call.name} {body[:240]}".rstrip()


def _nothing(process: Process) -> None:
    pass
