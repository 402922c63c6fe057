"""The door to one API server."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from navarchos.client.config import ClientConfig, load_config
from navarchos.client.credentials import Impersonation
from navarchos.client.discovery import ApiResource, Discovery
from navarchos.client.executor import RequestExecutor
from navarchos.client.resource import Resource
from navarchos.client.resource_client import ResourceClient
from navarchos.client.transport import Call, FunctionTransport, RawResponse, Transport, WriteFence
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """One API server, as one user, over one pool of connections.

    ```python
    client = Client.from_config()
    nodes = client.resource(NODES)
    nodes.patch("node-1", {"spec": {"unschedulable": True}})
    ```

    Args:
        config: Where, and as whom.
        clock: Source of deadlines and waits. Sockets know real time only.
        instruments: Where requests are counted.
        stop: Setting it frees every thread that waits in this client, with
            `Stopped`. Leave it out where the last requests of a shutdown, such as
            the release of a lease, must still get through.
        transport: What carries requests; by default a pool of connections.

    Lifecycle: usable at once; `close()`, or leave its `with` block.
    Threads: safe from any thread.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
        stop: StopToken | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.config = config
        self._stop = stop.child() if stop is not None else StopToken(clock=clock)
        self._is_pooled = transport is None
        self._transport = transport if transport is not None else _pooled(config, clock)
        self._executor = RequestExecutor(
            config,
            self._transport,
            clock=clock,
            instruments=instruments or Instruments(),
            stop=self._stop,
        )
        self._discovery = Discovery(self._executor, clock=clock)

    @classmethod
    def from_config(
        cls,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        qps: float | None = None,
        burst: int | None = None,
        user_agent: str | None = None,
        timeout: float | None = 30.0,
        impersonate: Impersonation | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
        stop: StopToken | None = None,
    ) -> Self:
        """Return a client for the cluster that this process belongs to or is set to.

        An explicit kubeconfig wins over the variable `KUBECONFIG`, that over the
        pod's service account, that over `~/.kube/config`. For the other arguments
        see `ClientConfig`.

        Raises:
            ConfigError: No cluster could be found, or its settings are unusable.
        """
        found = load_config(kubeconfig=kubeconfig, context=context)
        config = replace(
            found,
            qps=qps,
            burst=burst,
            user_agent=user_agent or found.user_agent,
            timeout=timeout,
            impersonate=impersonate or found.impersonate,
        )
        return cls(config, clock=clock, instruments=instruments, stop=stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fenced(self, fence: WriteFence) -> Self:
        """Return this client with a fence before each request that may change something.

        Promises: `fence` is asked immediately before the bytes of such a request are
        handed to the network, also when connecting took long; the request waits for
        its answer no longer than the fence allowed; and when no answer came, what the
        kernel has not sent by then is dropped. Reads pass.

        Does not promise: to call back what is on its way.

        It is the same client otherwise: connections and limits are shared, and closing
        one closes both.
        """
        behind = copy.copy(self)
        behind._executor = self._executor.fenced(fence)  # noqa: SLF001 - of our own copy
        return behind

    def dedicated(
        self, *, clock: Clock = SYSTEM_CLOCK, instruments: Instruments | None = None
    ) -> Self:
        """Return a client of the same server and user that nothing else can hold up.

        It has no limit on requests, no fence and connections of its own. Where the
        transport of this one was given, that carries the requests of both; closing
        either of them does not close the other.
        """
        config = replace(self.config, qps=None, burst=None)
        transport = None if self._is_pooled else FunctionTransport(self._transport.send)
        return type(self)(config, clock=clock, instruments=instruments, transport=transport)

    def resource(
        self, resource: Resource[T], *, keep_managed_fields: bool = False
    ) -> ResourceClient[T]:
        """Return the verbs on one resource."""
        return ResourceClient(self._executor, resource, keep_managed_fields=keep_managed_fields)

    def raw(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> RawResponse:
        """Send any request; return the answer, whatever its status.

        Args:
            method: HTTP method.
            path: Path, which may carry a query.
            body: Bytes as they are; anything else is sent as JSON.
            query: Further parameters.
            headers: Further header fields; they win over the client's own.
            timeout: Seconds; `None` for the client's default.

        Raises:
            TransportError: There was no answer.
        """
        encoded = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        return self._executor.call(
            Call(
                method,
                method,
                path,
                "raw",
                query=list((query or {}).items()),
                body=encoded,
                headers=headers,
                timeout=timeout,
            )
        )

    def server_version(self) -> str:
        """Return the server's version, such as `v1.34.1`."""
        return self._discovery.server_version()

    def api_resources(self, group: str, version: str) -> Sequence[ApiResource]:
        """Return the kinds that the server has in a group and version, if any.

        The answer may be half a minute old.
        """
        return self._discovery.resources(group, version)

    def has_kind(self, resource: Resource[Any]) -> bool:
        """Tell whether the server serves this kind; "no" is always asked anew."""
        return self._discovery.has_kind(resource)

    def close(self) -> None:
        """Free whoever waits in this client, and close idle connections."""
        self._stop.stop("the client was closed")
        self._transport.close()


def _pooled(config: ClientConfig, clock: Clock) -> Transport:
    # Here, so that tests with another transport do not load urllib3's connections.
    from navarchos.client.http.pool import PooledTransport

    return PooledTransport(config, clock=clock)
