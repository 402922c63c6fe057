"""Read and create objects of the API server as JSON."""

import builtins
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from navarchos.client import Client, RawResponse, Resource, TransportError
from navarchos.testing.apiserver import BucketId, StatusError
from navarchos.testing.controlplane.health import ReadinessCheck
from navarchos.testing.definitions import DEFINITIONS, not_ready_reason

__all__ = ["Access"]

_ACCOUNTS: Final = BucketId("serviceaccounts", "")

JsonObject = dict[str, Any]


class Access:
    """Creates and reads objects of any kind, as the administrator.

    Args:
        client: Sends the requests.
        wait: Waits until a readiness check passes.
        service_accounts: Whether a controller creates the default service account of
            every namespace.
    """

    def __init__(
        self, client: Client, *, wait: Callable[[ReadinessCheck], None], service_accounts: bool
    ) -> None:
        self._client = client
        self._wait = wait
        self._service_accounts = service_accounts
        self._known_lock = threading.Lock()
        # The resources of each API group version, by path; guarded by _known_lock.
        self._known: dict[str, builtins.list[JsonObject]] = {}

    def install(self, manifest: Mapping[str, object]) -> None:
        """Create an object with its status and wait until the object can be used.

        Raises:
            StatusError: The server rejects the object.
            DefinitionNotReady: The names of a CustomResourceDefinition are taken.
        """
        obj: JsonObject = dict(manifest)
        resource, has_status = self._by_kind(
            str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        )
        metadata = obj.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        created = self._call(
            "POST", resource.path(namespace), body=obj, query={"fieldValidation": "Strict"}
        )
        name = created["metadata"]["name"]
        if has_status and obj.get("status"):
            self._write_status(resource.path(namespace, name, "status"), obj["status"])
        self._wait_until_usable(created)

    def get(self, kind: BucketId, namespace: str, name: str) -> JsonObject:
        """Return an object.

        Raises:
            StatusError: 404, the object or the kind does not exist.
        """
        return self._call("GET", self.resource(kind).path(namespace, name))

    def list(self, kind: BucketId, namespace: str) -> list[JsonObject]:
        """Return the objects of a kind in the server's order, which is by key.

        Raises:
            StatusError: 404, the kind does not exist.
        """
        resource = self.resource(kind)
        found = self._call("GET", resource.path(namespace))["items"]
        # The items of a list lack apiVersion and kind.
        kind_of_item = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**kind_of_item, **item} for item in found]

    def resource(self, kind: BucketId) -> Resource[builtins.dict[str, Any]]:
        """Return a kind in the server's preferred version.

        Raises:
            StatusError: 404, the kind does not exist.
        """
        version = "v1"
        if kind.group:
            group = self._call("GET", f"/apis/{kind.group}")
            version = group["preferredVersion"]["version"]
        for served in self._served(kind.group, version):
            for entry in served:
                if entry["name"] == kind.plural:
                    return _resource(kind.group, version, entry)
        raise StatusError(404, "NotFound", f"no resource {kind.plural!r} in group {kind.group!r}")

    def _by_kind(
        self, api_version: str, kind: str
    ) -> tuple[Resource[builtins.dict[str, Any]], bool]:
        group, _, version = api_version.rpartition("/")
        missing = StatusError(
            404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"'
        )
        if not version:
            raise missing
        try:
            for served in self._served(group, version):
                names = {entry["name"] for entry in served}
                for entry in served:
                    if entry["kind"] == kind and "/" not in entry["name"]:
                        has_status = f"{entry['name']}/status" in names
                        return _resource(group, version, entry), has_status
        except StatusError as error:
            raise missing from error
        raise missing

    def _served(self, group: str, version: str) -> Iterator[builtins.list[JsonObject]]:
        """Yield the known resources of a group version, then those the server lists now."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        with self._known_lock:
            known = self._known.get(path)
        if known is not None:
            yield known
        found: list[JsonObject] = self._call("GET", path)["resources"]
        with self._known_lock:
            self._known[path] = found
        yield found

    def _write_status(self, path: str, status: object) -> None:
        self._call(
            "PATCH",
            path,
            body={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def _wait_until_usable(self, obj: JsonObject) -> None:
        if obj["kind"] == DEFINITIONS.kind:
            with self._known_lock:
                self._known.clear()
            self._wait(lambda: not_ready_reason(self._client, obj))
        elif obj["kind"] == "Namespace" and self._service_accounts:
            self._wait(lambda: self.missing(_ACCOUNTS, obj["metadata"]["name"], "default"))

    def missing(self, kind: BucketId, namespace: str, name: str) -> str:
        """Return why an object cannot be read, or `""` if it can."""
        try:
            self.get(kind, namespace, name)
        except (StatusError, TransportError) as error:
            return str(error)
        return ""

    def request_token(self, namespace: str, name: str, lifetime: int) -> str:
        """Return a new token of a service account.

        Raises:
            StatusError: 404, the account does not exist.
        """
        path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(name)}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime},
        }
        return str(self._call("POST", path, body=body)["status"]["token"])

    def _call(self, method: str, path: str, **options: Any) -> JsonObject:
        return _decoded(self._client.raw(method, path, **options))


def _resource(group: str, version: str, entry: JsonObject) -> Resource[builtins.dict[str, Any]]:
    return Resource(
        group, version, entry["name"], entry["kind"], namespaced=entry["namespaced"], type=dict
    )


def _decoded(response: RawResponse) -> JsonObject:
    """Return the object of a response, or raise the error that it reports."""
    try:
        body = msgspec.json.decode(response.body)
    except msgspec.DecodeError:  # proxies and paths outside the API answer with text
        body = {"message": response.body.decode("utf-8", "replace").strip()}
    if response.status >= 400:
        raise StatusError(
            response.status,
            body.get("reason", ""),
            body.get("message", ""),
            details=body.get("details"),
            retry_after=int(response.headers.get("retry-after", 0)),
        )
    found: JsonObject = body
    return found
