"""How faults strike: before a request is served, and in the stream of a watch."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aiohttp import web

from navarchos.testing.apiserver.eviction import charge
from navarchos.testing.apiserver.faults import Asked, Fault
from navarchos.testing.apiserver.handler import Call, Request, read_eviction
from navarchos.testing.apiserver.reading import expired_page
from navarchos.testing.apiserver.writing import Api

__all__ = ["Cut", "FaultyStream", "asked_by", "strike"]


class Cut(Exception):
    """The connection is to be cut without an answer."""


def asked_by(call: Call, request: Request) -> Asked:
    """Return what faults go by in a request."""
    query = request.query
    return Asked(
        verb=call.verb,
        resource=call.resource,
        name=call.name,
        user_agent=request.user_agent,
        from_cache=_is_from_cache(call, request),
        continues=call.verb == "list" and bool(query.get("continue")),
    )


def _is_from_cache(call: Call, request: Request) -> bool:
    """Return whether upstream's watch cache may answer, rather than etcd."""
    query = request.query
    version, match = query.get("resourceVersion"), query.get("resourceVersionMatch")
    if not version or query.get("continue"):
        return False
    if call.verb == "list":
        pages = query.get("limit", "0") != "0" and version != "0" and not match
        return match != "Exact" and not pages
    return call.verb == "get"


async def strike(fault: Fault, api: Api, call: Call, request: Request) -> Api:
    """Do what a fault does before a request is served; returns what is to serve it.

    Raises:
        Cut: The connection is to end instead.
        StatusError: The answer.
    """
    if fault.delay:
        await asyncio.sleep(fault.delay)
    if fault.charge_only and call.target is not None:
        body, options = read_eviction(request)
        charge(api, call.target.kind, call.target.namespace, call.target.name, body, options)
    error = fault.error()
    if fault.reset or (fault.charge_only and error is None):
        raise Cut
    if error is not None:
        raise error
    if fault.expire_continue:
        raise expired_page(request.query["continue"])
    if fault.lag and call.target is not None:
        return replace(api, store=api.store.as_of(call.target.kind.bucket, fault.lag))
    return api


class FaultyStream:
    """Writes watch lines, wrongly where a fault says so."""

    def __init__(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        fault: Fault | None,
        stopping: asyncio.Event,
    ) -> None:
        self._raw = raw
        self._response = response
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._stopping = stopping
        self._sent = 0

    async def send(self, lines: Sequence[bytes]) -> bool:
        """Write lines; returns False when the stream is to end."""
        if self._fault is None:
            if lines:
                await self._response.write(b"".join(lines))
            return True
        if not lines:
            return await self._obey(self._fault, b"")
        for line in lines:
            if not await self._send_one(self._fault, line):
                return False
        return True

    async def _send_one(self, fault: Fault, line: bytes) -> bool:
        if not await self._obey(fault, line):
            return False
        self._sent += 1
        if self._sent == fault.lose:
            return True
        await self._response.write(line * 2 if self._sent == fault.duplicate else line)
        return await self._obey(fault, b"")

    async def _obey(self, fault: Fault, upcoming: bytes) -> bool:
        if self._sent == fault.truncate_after and upcoming:
            await self._response.write(upcoming[: len(upcoming) // 2])
            raise Cut
        if self._sent == fault.stall_within and upcoming:
            await self._response.write(upcoming[: len(upcoming) // 2])
            await self._stopping.wait()
            raise Cut
        if self._sent == fault.drop_after:
            return False
        if self._sent == fault.half_close_after:
            transport = self._raw.transport
            if transport is not None and transport.can_write_eof():
                transport.write_eof()
            await self._stopping.wait()
            raise Cut
        if self._sent == fault.stall_after:
            await self._stopping.wait()
            return False
        return True
