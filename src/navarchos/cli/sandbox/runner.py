"""The sandbox itself: server, cluster and manager, started and stopped in order."""

import contextlib
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from navarchos._version import __version__
from navarchos.cli import manifest_files as files
from navarchos.cli.exits import ExitStatus
from navarchos.cli.failure import Failure
from navarchos.cli.manifest_files import Manifest
from navarchos.cli.sandbox.manager_process import ManagerProcess
from navarchos.cli.sandbox.observer import Observer, Snapshot
from navarchos.cli.sandbox.report import Report, why_not_completed
from navarchos.cli.sandbox.view import View
from navarchos.client import Client
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.operator.api.v1alpha1 import RolloutPhase
from navarchos.operator.api.v1alpha1.definitions import manifests as crd_manifests
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import Cluster, ClusterOptions

__all__ = ["Outcome", "Sandbox", "SandboxOptions"]

_TICK: Final = 0.25
"""Seconds between looks when nothing happens; what happens wakes us at once."""


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """Size and pace of the sandbox.

    Attributes:
        nodes: Nodes in the cluster.
        pods_per_node: Pods on each of them, about.
        speed: Simulated seconds per real second.
        timeout: Real seconds until a run is given up.
        port: Port of the server on loopback; 0 takes a free one.
        kubeconfig: Where to write the kubeconfig; a temporary place when `None`.
    """

    nodes: int = 12
    pods_per_node: int = 8
    speed: float = 20.0
    timeout: float = 300.0
    port: int = 0
    kubeconfig: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to, and why it failed if it did."""

    report: Report
    failure: Failure | None


class Sandbox:
    """A cluster, its API server and the production manager, for as long as it is entered.

    Promises: leaving it, for whatever reason, ends the manager's process, frees
    the port and removes what it wrote; within two seconds.
    """

    def __init__(self, options: SandboxOptions, *, clock: Clock = SYSTEM_CLOCK) -> None:
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
        # A second Ctrl-C must not leave the manager behind.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._stack.close()
        finally:
            signal.signal(signal.SIGINT, previous)

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self._server.url

    @property
    def kubeconfig(self) -> Path:
        """The file that lets kubectl in."""
        return self._kubeconfig

    def roll_out(self, manifests: Sequence[Manifest], view: View) -> Outcome:
        """Create the objects and follow their rollouts to the end.

        Raises:
            Failure: An object was refused (status 2, nothing was created), or the
                manager keeps dying (1).
        """
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
        return Outcome(report, self._judge(snapshot, names))

    def serve(self, view: View) -> None:
        """Follow what happens until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            self._follow(view, until=lambda _: False)

    def _set_up(self, stack: ExitStack) -> None:
        options = self._options
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="navarchos-")))
        self._server = ApiServer(port=options.port, crds=crd_manifests())
        self._cluster = Cluster(
            self._server,
            options=ClusterOptions(
                nodes=options.nodes,
                pods_per_node=options.pods_per_node,
                speed=options.speed,
                terminate_label=DRAIN_COMPLETED_LABEL,
            ),
        )
        self._server.start()
        stack.callback(self._server.stop)
        stack.callback(self._server.subscribe(self._observer.on_change))
        self._kubeconfig = self._write_kubeconfig(stack, directory)
        self._client = Client.from_config(
            kubeconfig=self._kubeconfig, user_agent=f"navarchos-sandbox/{__version__}"
        )
        stack.callback(self._client.close)
        self._cluster.populate()
        self._cluster.start()
        stack.callback(self._cluster.stop)
        self._manager = ManagerProcess(self._kubeconfig, log=directory / "manager.log")
        self._manager.start()
        stack.callback(self._manager.stop)

    def _write_kubeconfig(self, stack: ExitStack, directory: Path) -> Path:
        path = self._options.kubeconfig or directory / "kubeconfig"
        try:
            self._server.write_kubeconfig(path)
        except OSError as error:
            raise Failure(
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
                self._manager.ensure_running()
                seen = self._observer.wait(seen, _TICK)

    def _judge(self, snapshot: Snapshot, names: Sequence[str]) -> Failure | None:
        for violation in self._cluster.violations:
            return Failure(f"a promise was broken: {violation}")
        if _all_completed(snapshot, names):
            return None
        ended = _all_ended(snapshot, names)
        late = "" if ended else f"not done in {self._options.timeout:g} s: "
        return Failure(f"{late}{why_not_completed(snapshot, names)}")

    def _report(self, snapshot: Snapshot, names: Sequence[str], seconds: float) -> Report:
        return Report(
            rollouts=[r for r in snapshot.rollouts if r.metadata.name in names],
            nodes=self._options.nodes,
            order=snapshot.order,
            max_in_flight=snapshot.max_in_flight,
            evictions=self._cluster.stats.evictions_granted,
            api_requests=self._server.requests_by("navarchos-manager/"),
            manager_peak_memory=self._manager.peak_memory,
            seconds=seconds,
        )


def _phases(snapshot: Snapshot, names: Sequence[str]) -> list[RolloutPhase | None]:
    by_name = {rollout.metadata.name: rollout.status.phase for rollout in snapshot.rollouts}
    return [by_name.get(name) for name in names]


def _all_completed(snapshot: Snapshot, names: Sequence[str]) -> bool:
    return all(phase is RolloutPhase.COMPLETED for phase in _phases(snapshot, names))


def _all_ended(snapshot: Snapshot, names: Sequence[str]) -> bool:
    ends = {RolloutPhase.COMPLETED, RolloutPhase.HALTED}
    return all(phase in ends for phase in _phases(snapshot, names))
