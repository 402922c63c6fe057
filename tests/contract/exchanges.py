"""Requests to the server under contract, and the parts of responses that are compared."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import unquote_plus, urlencode

import urllib3

__all__ = ["Exchange", "Http", "Reply", "plain"]

Json = Any
T = TypeVar("T")

KEPT_HEADERS = ("Content-Type", "Retry-After", "Warning")
# Explanatory texts, which are not part of the contract; docs/testing/project-tests.md says why.
HELP = {"columnDefinitions": "description"}
VERSIONS = frozenset({"resourceVersion", "uid", "continue"})


def _sorted(listed: re.Match[str]) -> str:
    return ", ".join(sorted(listed[0].split(", ")))


# The parts that differ between any two servers or runs, in the order of replacement.
PASSING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "<time>"),
    (re.compile(r"\bcontract-[a-z0-9]{5}\b"), "<namespace>"),
    (re.compile(r"\b(map|w)-[a-z0-9]{5}\b"), r"<\1>"),
    (re.compile(r"(too old resource version: )\d+ \(\d+\)"), r"\1<version> (<version>)"),
    (re.compile(r"((?:current|object meta|resource version): )\d+"), r"\1<version>"),
    (re.compile(r"(in record )\(\d+\)"), r"\1(<version>)"),
    (re.compile(r"^\d+s$"), "<age>"),
    (re.compile(r"(X509SHA256=)[0-9a-f]{64}"), r"\1<digest>"),
    (re.compile(r"(?<=RBAC: \[)[^\]]+"), _sorted),  # upstream iterates bindings in random order
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
)
# Values that Go prints with its own field names.
STRUCT = re.compile(r"(Invalid value: )[\[{].*[\]}](?=: )")
# The beginnings of texts that end in the words of a programming language or a parser.
FOREIGN = re.compile(
    r"(compilation failed: |converting YAML to JSON: yaml: (?!unmarshal)"
    r"|continue key is not valid: |previously negative\)"
    r"|invalid: patch: Invalid value: |^Invalid value: (?=\"(?:\{|map\[))).*",
    re.DOTALL,
)


def plain(value: Json, *, key: str = "") -> Json:
    """Return a response without times, uids, versions and generated names."""
    if isinstance(value, dict):
        return {plain(k): plain(v, key=k) for k, v in value.items()}
    if key == "managedFields" and isinstance(value, list):
        # Sorted by content, because the order by times differs in every run.
        return sorted(plain(json.dumps(entry, sort_keys=True)) for entry in value)
    if isinstance(value, list):
        hidden = HELP.get(key)
        return [plain(_without(item, hidden) if hidden else item) for item in value]
    if not isinstance(value, str):
        return value
    if key in VERSIONS and value:
        return f"<{key}>"
    for pattern, name in PASSING:
        value = pattern.sub(name, value)
    return FOREIGN.sub(r"\1<...>", STRUCT.sub(r"\1<...>", value))


def _without(value: dict[str, Any], hidden: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != hidden}


@dataclass(frozen=True)
class Exchange:
    """One request and its response, in the form that is compared."""

    request: str
    code: int
    headers: Mapping[str, str]
    body: Json

    def to_json(self) -> Json:
        return {
            "request": self.request,
            "code": self.code,
            "headers": dict(self.headers),
            "body": self.body,
        }


@dataclass
class Reply:
    """A decoded response."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[dict[str, str]]:
        causes: list[dict[str, str]] = self.body.get("details", {}).get("causes", [])
        return causes


@dataclass
class Http:
    """Sends requests, and keeps the exchanges.

    Attributes:
        url: The server's address.
        pool: The connections.
        headers: The headers of every request.
        exchanges: The exchanges so far; `unrecorded` leaves some out.
    """

    url: str
    pool: urllib3.PoolManager
    headers: dict[str, str] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    _unrecorded: bool = False

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
        **query: Any,
    ) -> Reply:
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = self._url(path, query)
        response = self.pool.request(
            method,
            f"{self.url}{url}",
            body=raw,
            headers={**self.headers, "Accept": accept, "Content-Type": content_type},
        )
        text = response.data
        decoded = json.loads(text) if text[:1] in {b"{", b"["} else text.decode()
        reply = Reply(response.status, decoded, dict(response.headers))
        self._keep(method, url, reply)
        return reply

    def create(self, path: str, body: object, **query: Any) -> dict[str, Any]:
        reply = self("POST", path, body, **query)
        assert reply.code == 201, reply.body
        created: dict[str, Any] = reply.body
        return created

    def merge(self, path: str, body: object, **query: Any) -> Reply:
        return self("PATCH", path, body, content_type="application/merge-patch+json", **query)

    def apply(self, path: str, body: object, manager: str | None = "one", **query: Any) -> Reply:
        media = "application/apply-patch+yaml"
        return self("PATCH", path, body, content_type=media, fieldManager=manager, **query)

    def watch(
        self,
        path: str,
        count: int,
        *,
        accept: str = "",
        once_open: Callable[[], object] = lambda: None,
        **query: Any,
    ) -> list[dict[str, Any]]:
        """Return the first `count` events, or fewer if the watch ends earlier.

        `once_open` is called when the response has begun.
        """
        url = self._url(path, {"watch": "true", "timeoutSeconds": 10, **query})
        headers = {**self.headers, "Accept": accept} if accept else self.headers
        response = self.pool.request(
            "GET", f"{self.url}{url}", headers=headers, preload_content=False
        )
        found: list[dict[str, Any]] = []
        try:
            once_open()
            while len(found) < count and (line := response.readline()):
                found.append(json.loads(line))
        finally:
            response.close()
        self._keep("WATCH", url, Reply(response.status, found, dict(response.headers)))
        return found

    def in_parallel(self, *asks: Callable[["Http"], T]) -> list[T]:
        """Send requests in parallel; keep the exchanges in the given order.

        For requests that take a real server several seconds.
        """
        clients = [replace(self, exchanges=[]) for _ in asks]
        with ThreadPoolExecutor(len(asks)) as pool:
            answers = list(pool.map(lambda ask, client: ask(client), asks, clients))
        for client in clients:
            self.exchanges.extend(client.exchanges)
        return answers

    def wait_for_cache(self, path: str, name: str) -> None:
        """Return when the server's cache of a collection has the current version of an object.

        A real server responds from its cache to requests for any version, or for a newer one. The
        cache may be a moment behind.
        """
        with self.unrecorded():
            version = self("GET", f"{path}/{name}").body["metadata"]["resourceVersion"]
            fresh = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
            assert self("GET", path, **fresh).code == 200

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Keep no exchanges in a `with` block."""
        before, self._unrecorded = self._unrecorded, True
        try:
            yield
        finally:
            self._unrecorded = before

    def _url(self, path: str, query: dict[str, Any]) -> str:
        text = urlencode({key: value for key, value in query.items() if value is not None})
        return path + (f"?{text}" if text else "")

    def _keep(self, method: str, url: str, reply: Reply) -> None:
        if self._unrecorded:
            return
        # Versions 0 and 1 have a meaning, so they are compared.
        varies = r"(continue=)[^&]+|(resourceVersion=)(?:\d{2,}|[2-9])"
        asked = re.sub(varies, r"\1\2<>", unquote_plus(url))
        request = plain(f"{method} {asked}")
        headers = {
            name: plain(reply.headers[name]) for name in KEPT_HEADERS if name in reply.headers
        }
        self.exchanges.append(Exchange(request, reply.code, headers, plain(reply.body)))
