"""The sandbox: a cluster and the manager process, and the report of a run."""

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from navarchos._version import __version__
from navarchos.cli import controllers
from navarchos.cli import manifest_files as files
from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.manifest_files import Manifest
from navarchos.cli.sandbox.clusters import SandboxCluster
from navarchos.cli.sandbox.observer import Observer, Snapshot
from navarchos.cli.sandbox.view import View
from navarchos.client import Client, ClientSettings
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.systems import ROLLOUTS, System
from navarchos.runtime.conditions import find_condition

__all__ = [
    "PROGRAM",
    "ManagerProcess",
    "Sandbox",
    "SandboxOptions",
    "SandboxReport",
    "SandboxResult",
    "why_not_completed",
]


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """The result of a run of the sandbox.

    Attributes:
        rollouts: The final rollouts.
        nodes: The number of nodes at the start.
        order: The names of the nodes in the order in which they started.
        max_in_flight: The maximum number of nodes in flight at the same time.
        evictions: The number of evictions that the server granted.
        api_requests: Requests of the manager, by verb.
        manager_peak_memory: Bytes; 0 if the operating system does not report it.
        seconds: Real time from the creation of the rollouts to the end.
        checks_budgets: Whether a violated budget would have ended the run.
    """

    rollouts: Sequence[api.NodeRollout]
    nodes: int
    order: Sequence[str]
    max_in_flight: int
    evictions: int
    api_requests: Mapping[str, int]
    manager_peak_memory: int
    seconds: float
    checks_budgets: bool = True

    def as_json(self) -> dict[str, object]:
        """Return the object that `-o json` prints."""
        return {
            "rollouts": [_rollout_as_json(rollout) for rollout in self.rollouts],
            "nodes": self.nodes,
            "order": list(self.order),
            "maxInFlight": self.max_in_flight,
            "evictions": self.evictions,
            "apiRequests": dict(sorted(self.api_requests.items())),
            "managerPeakMemoryMiB": round(self.manager_peak_memory / 2**20, 1),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return one line per rollout and one for the whole run."""
        lines = [
            f"{r.metadata.name} {r.status.phase}: {r.status.replacements_completed_count} of "
            f"{len(r.status.nodes)} nodes replaced"
            for r in self.rollouts
        ]
        requests = sum(self.api_requests.values())
        budgets = ", no budget violated" if self.checks_budgets else ""
        lines.append(
            f"{self.seconds:.1f} s, {self.evictions} pods evicted, at most "
            f"{self.max_in_flight} in flight, {requests} requests{budgets}"
        )
        return "\n".join(lines)


def _rollout_as_json(rollout: api.NodeRollout) -> dict[str, object]:
    status = rollout.status
    return {
        "name": rollout.metadata.name,
        "phase": str(status.phase or api.RolloutPhase.NEW),
        "created": status.replacements_created_count,
        "completed": status.replacements_completed_count,
        "failed": status.replacements_failed_count,
    }


def why_not_completed(snapshot: Snapshot, names: Sequence[str]) -> str:
    """Return one line: the rollouts that are not Completed, why, and the blocked pods."""
    rollouts = [r for r in snapshot.rollouts if r.metadata.name in names]
    parts = [
        f"{r.metadata.name} is {r.status.phase or api.RolloutPhase.NEW}{_because(r)}"
        for r in rollouts
        if r.status.phase is not api.RolloutPhase.COMPLETED
    ]
    parts += [
        f"{name} was deleted" for name in names if name not in {r.metadata.name for r in rollouts}
    ]
    return "; ".join([*parts, *_blockers(rollouts, snapshot.replacements)])


def _because(rollout: api.NodeRollout) -> str:
    halted = find_condition(rollout.status.conditions, "Halted")
    if halted is not None and halted.status == "True":
        return f" ({halted.reason}: {halted.message})"
    done, total = rollout.status.replacements_completed_count, len(rollout.status.nodes)
    return f" ({done} of {total} nodes replaced)"


def _blockers(
    rollouts: Sequence[api.NodeRollout], replacements: Sequence[api.NodeReplacement]
) -> list[str]:
    blocked = [
        f"{entry.pod} on {entry.node}: {entry.reason} {entry.budget}".rstrip()
        for rollout in rollouts
        for entry in rollout.status.blocked
    ]
    failed = [
        f"{note.name} on {r.spec.node_name}: {note.reason}"
        for r in replacements
        if r.status.phase is api.ReplacementPhase.FAILED
        for note in r.status.failed_pods
    ]
    found = blocked or failed
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return [f"blocked by {', '.join([*found[:3], *more])}"] if found else []


PROGRAM: Final = (sys.executable, "-m", "navarchos.cli")
"""The command line of this version, which runs the manager."""

_STOP_LIMIT: Final = 1.0
"""Seconds that the manager gets to end."""


class ManagerProcess:
    """Runs `navarchos manager` against the sandbox's server.

    The process has a separate session, so that Ctrl-C reaches only the sandbox, which
    then stops the process in order. The process also ends if the sandbox is killed,
    because its standard input is a pipe of the sandbox.

    Args:
        kubeconfig: The kubeconfig of the manager.
        log: The file for the logs of the manager.
        flags: More flags of the manager.
        restarts: How often a manager that exited is started again before the sandbox
            fails.
    """

    def __init__(
        self, kubeconfig: Path, *, log: Path, flags: Sequence[str] = (), restarts: int = 5
    ) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._flags = tuple(flags)
        self._restarts = restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._peak = 0

    @property
    def peak_memory(self) -> int:
        """The maximum resident set in bytes; 0 if the operating system does not report it."""
        if self._process is not None:
            self._peak = max(self._peak, _peak_memory(self._process.pid))
        return self._peak

    def start(self) -> None:
        """Start the process. It connects to the server by itself."""
        with self._log.open("ab") as log:
            self._process = _spawn(self._kubeconfig, log, self._flags)

    def ensure_running(self) -> int | None:
        """Start the process again if it exited.

        Returns:
            The exit status of the process, or `None` if it is running.

        Raises:
            CommandError: The process exited too often. The message has its last log line.
        """
        status = self._process.poll() if self._process is not None else 0
        if status is None:
            return None
        if self._restarts == 0:
            raise CommandError(
                f"the manager exited too often (status {status}): {self.last_log_line()}"
            )
        self._restarts -= 1
        self._forget()
        self.start()
        return status

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end in time."""
        process = self._process
        if process is None:
            return
        self._peak = self.peak_memory
        process.terminate()
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def last_log_line(self) -> str:
        """Return the last line of the manager's log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no log lines")


def _spawn(kubeconfig: Path, log: IO[bytes], flags: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own program with our own arguments
        [
            *(*PROGRAM, "manager"),
            *("--kubeconfig", str(kubeconfig)),
            *("--metrics-addr", "0", "--health-addr", "0"),
            "--until-stdin-closes",
            *flags,
        ],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _peak_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


_TICK: Final = 0.25
"""Seconds between two checks of the manager process. Changes in the cluster wake the loop."""


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """The cluster of the sandbox, and how it is used.

    Attributes:
        timeout: Real seconds after which a run fails.
        kubeconfig: The file to write the kubeconfig to; `None` for a temporary file.
        systems: The systems that the manager runs.
        runs_manager: Whether a manager runs.
    """

    timeout: float = 300.0
    kubeconfig: Path | None = None
    systems: tuple[System, ...] = (ROLLOUTS,)
    runs_manager: bool = True


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The result of a run; `failure` is the error if the run failed."""

    report: SandboxReport
    failure: CommandError | None


class Sandbox:
    """A cluster with its API server and the production manager, as a context manager.

    Promises: leaving the context ends the manager process, frees the port and removes
    all files of the sandbox, also after an error or a signal; within two seconds if the
    cluster is simulated.
    """

    def __init__(
        self, cluster: SandboxCluster, options: SandboxOptions, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._observer = Observer(clock=clock)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not interrupt the stop of the manager.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._stack.close()
        finally:
            signal.signal(signal.SIGINT, previous)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._cluster.url

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the server."""
        return self._kubeconfig

    def roll_out(self, manifests: Sequence[Manifest], view: View) -> SandboxResult:
        """Create the objects and follow their rollouts to the end.

        Raises:
            CommandError: The server refused an object (status 2, nothing was created), or
                the manager exited too often (status 1).
        """
        manifests = self._cluster.adapt(manifests)
        files.check(self._client, manifests)
        started = self._clock.monotonic()
        created = files.create(self._client, manifests)
        pairs = zip(manifests, created, strict=True)
        names = [name for manifest, name in pairs if manifest.kind == "NodeRollout"]
        deadline = started + self._options.timeout

        def ended(snapshot: Snapshot) -> bool:
            return _all_ended(snapshot, names) or self._clock.monotonic() > deadline

        snapshot = self._follow(view, until=ended)
        report = self._report(snapshot, names, self._clock.monotonic() - started)
        return SandboxResult(report, self._judge(snapshot, names))

    def serve(self, view: View) -> None:
        """Show the cluster until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            self._follow(view, until=lambda _: False)

    def _set_up(self, stack: ExitStack) -> None:
        options = self._options
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="navarchos-")))
        self._cluster.serve(stack, self._observer.on_change)
        self._kubeconfig = self._write_kubeconfig(stack, directory)
        self._client = Client.from_config(
            kubeconfig=self._kubeconfig,
            settings=ClientSettings(user_agent=f"navarchos-sandbox/{__version__}"),
        )
        stack.callback(self._client.close)
        self._cluster.populate(stack)
        self._manager = ManagerProcess(
            self._kubeconfig,
            log=directory / "manager.log",
            flags=controllers.flags(system.name for system in options.systems),
        )
        if options.runs_manager:
            self._manager.start()
            stack.callback(self._manager.stop)

    def _write_kubeconfig(self, stack: ExitStack, directory: Path) -> Path:
        path = self._options.kubeconfig or directory / "kubeconfig"
        try:
            self._cluster.write_kubeconfig(path)
        except OSError as error:
            raise CommandError(
                f"--kubeconfig {path}: cannot be written: {error.strerror}", status=ExitStatus.USAGE
            ) from error
        stack.callback(path.unlink, missing_ok=True)
        return path

    def _follow(self, view: View, *, until: Callable[[Snapshot], bool]) -> Snapshot:
        with view:
            seen = 0
            while True:
                snapshot = self._observer.snapshot()
                view.show(snapshot)
                if until(snapshot) or self._cluster.violations:
                    return snapshot
                if self._options.runs_manager:
                    self._manager.ensure_running()
                seen = self._observer.wait(seen, _TICK)

    def _judge(self, snapshot: Snapshot, names: Sequence[str]) -> CommandError | None:
        for violation in self._cluster.violations:
            return CommandError(f"an invariant was violated: {violation}")
        if _all_completed(snapshot, names):
            return None
        ended = _all_ended(snapshot, names)
        late = "" if ended else f"not completed within {self._options.timeout:g} s: "
        return CommandError(f"{late}{why_not_completed(snapshot, names)}")

    def _report(self, snapshot: Snapshot, names: Sequence[str], seconds: float) -> SandboxReport:
        return SandboxReport(
            rollouts=[r for r in snapshot.rollouts if r.metadata.name in names],
            nodes=self._cluster.nodes,
            order=snapshot.order,
            max_in_flight=snapshot.max_in_flight,
            evictions=self._cluster.evictions,
            api_requests=self._cluster.manager_requests(),
            manager_peak_memory=self._manager.peak_memory,
            seconds=seconds,
            checks_budgets=self._cluster.checks_budgets,
        )


def _phases(snapshot: Snapshot, names: Sequence[str]) -> list[api.RolloutPhase | None]:
    by_name = {rollout.metadata.name: rollout.status.phase for rollout in snapshot.rollouts}
    return [by_name.get(name) for name in names]


def _all_completed(snapshot: Snapshot, names: Sequence[str]) -> bool:
    return all(phase is api.RolloutPhase.COMPLETED for phase in _phases(snapshot, names))


def _all_ended(snapshot: Snapshot, names: Sequence[str]) -> bool:
    ends = {api.RolloutPhase.COMPLETED, api.RolloutPhase.HALTED}
    return all(phase in ends for phase in _phases(snapshot, names))
