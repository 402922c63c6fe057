"""Stopping a watch at any moment.

Invariants: the reader always ends with `Stopped`; only whole events were delivered; the
client can send the next request.
"""

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import Client, Resource
from navarchos.client.options import WatchOptions
from navarchos.errors import Stopped
from navarchos.stopping import StopToken

PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
CERTIFICATE = str(Path(__file__).parent / "tls" / "cert.pem")
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"%s"}}}\n' % (b"a" * 2000)


@pytest.fixture
def _eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def flood(peer: Peer) -> None:
    """Stream events without end; answer lists."""
    while (request := peer.receive()) is not None:
        if "watch" not in request.target:
            peer.answer(b'{"items":[]}')
            continue
        peer.begin_stream()
        while True:
            peer.stream(EVENT)


@pytest.mark.rule("RT-24")
@pytest.mark.usefixtures("_eager_switching")
@pytest.mark.parametrize("tls", [False, True])
def test_a_stop_at_any_moment_ends_the_watch_and_nothing_else(
    serve: Serve, connect: Connect, tls: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    moments = random.Random(seed)
    client = connect(serve(flood, tls=tls).url, ca_file=CERTIFICATE if tls else None)
    for _ in range(25):
        stop = StopToken()
        spins = moments.randrange(30_000)

        def stop_soon(stop: StopToken = stop, spins: int = spins) -> None:
            for _ in range(spins):
                pass
            stop.stop("now")

        stopper = threading.Thread(target=stop_soon)
        stopper.start()
        assert _names(client, stop) <= {"a" * 2000}
        stopper.join(30)
        assert client.resource(PODS).list().items == []


def _names(client: Client, stop: StopToken) -> set[str]:
    """Follow the watch until it is stopped; return the names seen."""
    names: set[str] = set()

    def follow() -> None:
        with client.resource(PODS).watch(
            options=WatchOptions(timeout_seconds=600), stop=stop
        ) as events:
            for event in events:
                assert event.object is not None
                names.add(event.object["metadata"]["name"])

    with pytest.raises(Stopped) as caught:
        follow()
    assert caught.value.reason == "now"
    return names
