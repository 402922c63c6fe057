"""Processes of an operator, in threads: a manager with a controller that marks config maps."""

import threading
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Final

from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap
from tests.integration.framework.waiting import LIMIT

from navarchos.client import Client, ClientConfig
from navarchos.leaderelection import LeaseTiming
from navarchos.runtime import (
    DONE,
    Builder,
    CachedClient,
    ControllerOptions,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Reconciler,
    Request,
    Result,
    when,
)
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["LEASE", "Copier", "Replica"]

LEASE: Final = "copier"


class Copier(Reconciler):
    """Adds a mark to each object once, decided on the cache."""

    def __init__(self, maps: CachedClient[ConfigMap], mark: str) -> None:
        self._maps = maps
        self._mark = mark
        self.marked = threading.Event()

    def reconcile(self, request: Request) -> Result:
        found = self._maps.find(request.name, request.namespace)
        if found is not None and "by" not in found.data:
            self._maps.patch_any_version(found, {"data": {"by": self._mark}})
            self.marked.set()
        return DONE


class Replica:
    """One process of an operator, in a thread."""

    def __init__(
        self,
        config: ClientConfig,
        namespace: str,
        name: str,
        *,
        election: bool,
        renew_deadline: float = 10.0,
        retry_period: float = 0.1,
        controllers: ControllerOptions = ControllerOptions(),  # noqa: B008 - frozen
    ) -> None:
        self.client = Client(replace(config, user_agent=name))
        lease = LeaderElectionOptions(
            name=LEASE,
            namespace=namespace,
            identity=name,
            timing=LeaseTiming(1.5 * renew_deadline, renew_deadline, retry_period),
        )
        options = ManagerOptions(
            metrics_address="127.0.0.1:0",
            health_address="127.0.0.1:0",
            leader_election=lease if election else None,
            controllers=controllers,
        )
        self.manager = Manager(self.client, options=options)
        self.copier = Copier(self.manager.cached_client(CONFIG_MAPS), name)

        def is_ours(found: ConfigMap) -> bool:
            return found.metadata.namespace == namespace

        ours = when(is_ours)
        builder = Builder(self.manager, "copier").for_(CONFIG_MAPS, when=ours)
        builder.build(self.copier)
        self.stop = StopToken()
        self.error: BaseException | None = None
        self._threads = ThreadGroup(f"replica-{name}", stop=StopToken())

    def start(self) -> "Replica":
        self._threads.start("", self._run)
        return self

    def join(self) -> "Replica":
        assert self._threads.join(LIMIT), self._threads.running()
        return self

    def end(self) -> None:
        self.stop.stop("the test is over")
        self.join()
        self.client.close()

    def get(self, path: str, *, health: bool = False) -> tuple[int, str]:
        port = self.manager.health_port if health else self.manager.metrics_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error
