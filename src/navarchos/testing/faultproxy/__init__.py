"""A TCP proxy between a client and a server that injects network faults.

```python
with ApiServer() as server, FaultProxy(server.url) as proxy:
    client = Client(ClientConfig(proxy.url))
    ...
    proxy.strike(WireFault(WireFaultKind.STALL, after_lines=2, after_bytes=7))  # in the third line
    assert proxy.wait_for_strikes(1, timeout=30)
    proxy.heal()
```

The proxy works on bytes and newlines only, so the server may speak HTTP, TLS or any
other protocol. `navarchos.testing.apiserver.Fault` is the counterpart inside the
in-process server: it works on requests and events, and cannot break a connection
between client and server as a network does.
"""

from navarchos.testing.faultproxy.faults import Direction, WireFault, WireFaultKind
from navarchos.testing.faultproxy.proxy import FaultProxy

__all__ = ["Direction", "FaultProxy", "WireFault", "WireFaultKind"]
