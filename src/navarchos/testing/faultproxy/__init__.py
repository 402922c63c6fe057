"""A proxy between a client and a server that does to their bytes what networks do.

```python
with ApiServer() as server, FaultProxy(server.url) as proxy:
    client = Client(ClientConfig(proxy.url))
    ...
    proxy.strike(WireFault(Kind.STALL, after_lines=2, after_bytes=7))  # in the third line
    assert proxy.wait_for_strikes(1, timeout=30)
    proxy.heal()
```

It knows TCP, bytes and newlines, and nothing else: what stands behind it may speak
HTTP, TLS or anything. `navarchos.testing.apiserver.Fault` is its counterpart inside
of the in-process server, which knows requests and events, but can break them only
where the server still has its hand on them.
"""

from navarchos.testing.faultproxy.faults import Direction, Kind, WireFault
from navarchos.testing.faultproxy.proxy import FaultProxy

__all__ = ["Direction", "FaultProxy", "Kind", "WireFault"]
