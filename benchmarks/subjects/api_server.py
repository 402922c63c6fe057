"""Put the API server for tests under small requests, a long list and many watches.

python -m benchmarks.subjects.api_server GETS LISTED WATCHES EVENTS

Its clients are in this process, so the figures include their cost.
"""

import json
import socket
import sys
from urllib.parse import urlsplit

from benchmarks.subjects.reporting import Reporter
from navarchos.client import Client, ClientConfig
from navarchos.testing.apiserver import ApiServer

REQUEST = "GET {} HTTP/1.1\r\nHost: x\r\n\r\n"
MAPS = "/api/v1/configmaps"


def settings(count: int, prefix: str) -> list[dict[str, object]]:
    """Return small objects."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{prefix}{number:05}"},
            "data": {"k": "v" * 200},
        }
        for number in range(count)
    ]


def main() -> None:
    """Report the stages `got`, `listed` and `followed`."""
    gets, listed, watches, events = map(int, sys.argv[1:])
    reporter = Reporter()
    with ApiServer() as server:
        server.install(*settings(listed, "c"))
        url = urlsplit(server.url)
        address = (url.hostname, url.port)
        with socket.create_connection(address) as probe:
            one = REQUEST.format("/api/v1/namespaces/default/configmaps/c00000").encode()
            reporter.begin()
            for _ in range(gets):
                probe.sendall(one)
                probe.recv(65_536)
            reporter.end("got")
        with Client(ClientConfig(host=server.url)) as client:
            reporter.begin()
            body = client.raw("GET", MAPS).body
            reporter.end("listed")
        version = json.loads(body)["metadata"]["resourceVersion"]
        followers = [socket.create_connection(address) for _ in range(watches)]
        for follower in followers:
            follower.sendall(REQUEST.format(f"{MAPS}?watch=1&resourceVersion={version}").encode())
            follower.recv(65_536)  # the head of the answer
        reporter.begin()
        server.install(*settings(events, "w"))
        last = f"w{events - 1:05}".encode()
        for follower in followers:
            seen = b""
            while last not in seen:
                seen += follower.recv(65_536)
        reporter.end("followed")
        for follower in followers:
            follower.close()


if __name__ == "__main__":
    main()
