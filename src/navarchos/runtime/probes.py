"""`/healthz` and `/readyz`: named checks, as kubelet and people ask for them (MG-14)."""

import threading
from collections.abc import Callable
from typing import Final

from navarchos.errors import AlreadyStarted, ConfigError
from navarchos.logs import get_logger
from navarchos.runtime.httpserver import Answer, Query

__all__ = ["Checks", "Probes"]

_log = get_logger(__name__)

Check = Callable[[], None]
"""Returns if all is well, raises if not; the text of the exception is the reason."""


class Checks:
    """The checks of one endpoint. Without any there is one called `ping`."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self._checks_lock = threading.Lock()
        self._checks: dict[str, Check] = {}  # guarded by _checks_lock
        self._frozen = False  # guarded by _checks_lock

    def add(self, name: str, check: Check) -> None:
        """Add a check.

        Raises:
            AlreadyStarted: The endpoint is being served.
            ConfigError: The name is taken.
        """
        with self._checks_lock:
            if self._frozen:
                raise AlreadyStarted(f"endpoint {self.path}")
            if name in self._checks:
                raise ConfigError("check", name, "another check has this name")
            self._checks[name] = check

    def freeze(self) -> None:
        """Take no more checks."""
        with self._checks_lock:
            self._frozen = True

    def answer(self, name: str, query: Query) -> Answer:
        """Run one check, or all of them if `name` is empty."""
        with self._checks_lock:
            checks = dict(self._checks) or {"ping": _ping}
        if name:
            return _one(name, checks)
        excluded = set(query.get("exclude", ()))
        return self._all(checks, excluded, verbose="verbose" in query)

    def _all(self, checks: dict[str, Check], excluded: set[str], *, verbose: bool) -> Answer:
        lines, failed = [], False
        for name, check in sorted(checks.items()):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = _run(check)
            failed = failed or reason is not None
            # Reasons may tell too much to whoever can reach the port.
            lines.append(
                f"[+]{name} ok" if reason is None else f"[-]{name} failed: reason withheld"
            )
            if reason is not None:
                _log.info("check_failed", path=self.path, check=name, reason=reason)
        lines += [
            f"warn: some health checks cannot be excluded: no matches for {name}"
            for name in sorted(excluded - set(checks))
        ]
        if not failed and not verbose:
            return Answer.text(200, "ok")
        verdict = f"{self.path.strip('/')} check {'failed' if failed else 'passed'}"
        return Answer.text(500 if failed else 200, "\n".join([*lines, verdict, ""]))


class Probes:
    """Routes requests to the endpoints."""

    def __init__(self) -> None:
        self.healthz: Final = Checks("/healthz")
        self.readyz: Final = Checks("/readyz")

    def route(self, path: str, query: Query) -> Answer:
        """Answer a request."""
        for checks in (self.healthz, self.readyz):
            rest = path.removeprefix(checks.path)
            if rest != path and (not rest or rest.startswith("/")):
                return checks.answer(rest.strip("/"), query)
        return Answer.text(404, "not found: try /healthz or /readyz\n")


def _one(name: str, checks: dict[str, Check]) -> Answer:
    check = checks.get(name)
    if check is None:
        return Answer.text(404, f"no check called {name}\n")
    reason = _run(check)
    return Answer.text(200, "ok") if reason is None else Answer.text(500, f"{reason}\n")


def _run(check: Check) -> str | None:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return str(error) or type(error).__name__
    return None


def _ping() -> None:
    """Succeed: the process answers."""
