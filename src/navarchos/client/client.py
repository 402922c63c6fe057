"""The client of one API server."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from navarchos.client.config import ClientConfig, ClientSettings, load_config
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

_DEFAULTS: Final = ClientSettings()


class Client:
    """One API server, as one user, over one pool of connections.

    ```python
    client = Client.from_config()
    nodes = client.resource(NODES)
    nodes.patch("node-1", {"spec": {"unschedulable": True}})
    ```

    Args:
        config: The address and the credentials.
        clock: Time for deadlines and waits. Sockets use real time.
        instruments: The metrics of requests.
        stop: Setting it unblocks every thread that waits in this client, with `Stopped`.
            Leave it out if the last requests of a shutdown, such as the release of a
            lease, must still be sent.
        transport: Carries the requests; a pool of connections by default.

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
        settings: ClientSettings = _DEFAULTS,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
        stop: StopToken | None = None,
    ) -> Self:
        """Return a client for the configured cluster.

        The order is: an explicit kubeconfig, the variable `KUBECONFIG`, the service account
        of the pod, `~/.kube/config`.

        Args:
            kubeconfig: A kubeconfig file.
            context: The context in it; `None` for its current context.
            settings: Settings that a kubeconfig does not have, or that replace it.
            clock: As for the constructor.
            instruments: As for the constructor.
            stop: As for the constructor.

        Raises:
            ConfigError: No cluster is configured, or its configuration is invalid.
        """
        found = load_config(kubeconfig=kubeconfig, context=context)
        config = replace(
            found,
            qps=settings.qps,
            burst=settings.burst,
            user_agent=settings.user_agent or found.user_agent,
            timeout=settings.timeout,
            impersonate=settings.impersonate or found.impersonate,
        )
        return cls(config, clock=clock, instruments=instruments, stop=stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fenced(self, fence: WriteFence) -> Self:
        """Return this client with a fence before each write.

        After a suspended process resumes, it may write before it notices that another
        process leads; therefore writes ask a fence at the socket.

        Promises: `fence` is called immediately before the bytes of a write are handed to
        the network, also if connecting took long; the write waits for its response no
        longer than the fence allows; and if there was no response, bytes that the kernel
        has not sent are dropped. Reads are not affected.

        Does not promise: to recall a write that was already sent.

        Both clients share connections and limits; closing one closes both.
        """
        fenced = copy.copy(self)
        fenced._executor = self._executor.fenced(fence)  # noqa: SLF001 - a copy of this object
        return fenced

    def dedicated(
        self, *, clock: Clock = SYSTEM_CLOCK, instruments: Instruments | None = None
    ) -> Self:
        """Return a client of the same server and user that other requests cannot delay.

        It has separate connections, no rate limit and no fence. If this client was created
        with a transport, both clients use it. Closing one does not close the other.
        """
        config = replace(self.config, qps=None, burst=None)
        transport = None if self._is_pooled else FunctionTransport(self._transport.send)
        return type(self)(config, clock=clock, instruments=instruments, transport=transport)

    def resource(
        self, resource: Resource[T], *, keep_managed_fields: bool = False
    ) -> ResourceClient[T]:
        """Return the client of one resource."""
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
        """Send any request; return the response for any status.

        Args:
            method: HTTP method.
            path: Path; it may contain a query.
            body: Bytes are sent unchanged; any other value is sent as JSON.
            query: Further parameters.
            headers: Further header fields; they replace the client's fields.
            timeout: Seconds; `None` for the client's default.

        Raises:
            TransportError: There was no response.
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
        """Return the kinds of a group and version; empty if the server lacks it.

        The result may be half a minute old.
        """
        return self._discovery.resources(group, version)

    def has_kind(self, resource: Resource[Any]) -> bool:
        """Return whether the server serves this kind; a negative result is not cached."""
        return self._discovery.has_kind(resource)

    def close(self) -> None:
        """Unblock the threads that wait in this client, and close idle connections."""
        self._stop.stop("the client was closed")
        self._transport.close()


def _pooled(config: ClientConfig, clock: Clock) -> Transport:
    # Imported here, so that tests with another transport do not load urllib3.
    from navarchos.client.http.pool import PooledTransport

    return PooledTransport(config, clock=clock)
