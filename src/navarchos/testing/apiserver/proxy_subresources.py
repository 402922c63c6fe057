"""Subresources that a real server proxies: logs, exec, attach, port forwarding, proxies.

Nothing runs behind this server. It makes the checks that kube-apiserver makes before it connects to
a kubelet, a pod or a service (pkg/registry/core/pod/strategy.go, node/strategy.go,
service/storage). Then it reports that the connection was refused.
"""

import re
from collections.abc import Mapping
from typing import Final

from navarchos.testing.apiserver import objects, requests, store, writes
from navarchos.testing.apiserver import status as statuses

__all__ = ["PROXY_SUBRESOURCES", "is_proxied", "serve_proxied"]

_STREAM_VERBS: Final = ("create", "get")
_PROXY_VERBS: Final = ("create", "delete", "get", "patch", "update")

PROXY_SUBRESOURCES: Final[Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]]] = {
    "nodes": {"proxy": ("NodeProxyOptions", _PROXY_VERBS)},
    "pods": {
        "attach": ("PodAttachOptions", _STREAM_VERBS),
        "exec": ("PodExecOptions", _STREAM_VERBS),
        "log": ("Pod", ("get",)),
        "portforward": ("PodPortForwardOptions", _STREAM_VERBS),
        "proxy": ("PodProxyOptions", _PROXY_VERBS),
    },
    "services": {"proxy": ("ServiceProxyOptions", _PROXY_VERBS)},
}
"""The proxied subresources of the core group by resource, with their kinds and verbs."""

_PATH: Final = re.compile(
    r"/api/v1/(?:namespaces/(?P<namespace>[^/]+)/(?P<plural>pods|services)|nodes)/(?P<name>[^/]+)"
    r"/(?P<what>log|exec|attach|portforward|proxy(?=/|$))(?P<rest>/.*)?"
)
_OF_PODS: Final = frozenset({"log", "exec", "attach", "portforward"})
_ADDRESSES: Final = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
_KUBELET: Final = 10250
_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


def is_proxied(path: str) -> bool:
    """Return whether a path is a proxied subresource."""
    match = _PATH.fullmatch(path)
    if match is None:
        return False
    return match["what"] == "proxy" or (match["plural"] == "pods" and not match["rest"])


def serve_proxied(
    api: writes.Api, method: str, path: str, query: Mapping[str, str]
) -> requests.ApiResponse:
    """Return the response to a request for which `is_proxied` is true.

    Raises:
        StatusError: The checks fail, or the connection is refused.
    """
    match = _PATH.fullmatch(path)
    assert match is not None, path
    namespace, plural, name = match["namespace"] or "", match["plural"] or "nodes", match["name"]
    if match["what"] == "proxy":
        raise _unreachable(api, plural, namespace, name)
    if method not in ({"GET"} if match["what"] == "log" else {"GET", "POST"}):
        raise statuses.method_not_allowed()
    if match["what"] == "log":
        _check_log_options(query, name)
    pod = _object(api, "pods", namespace, name)
    if match["what"] != "portforward":
        _check_container(pod, name, query.get("container", ""))
    node = objects.dig(pod, "spec", "nodeName")
    if node:
        raise _refused(_address(_node_of_pod(api, node)), _KUBELET)
    if match["what"] == "log":
        return requests.ApiResponse(204, b"", "")
    raise statuses.bad_request(f"pod {name} does not have a host assigned")


def _object(api: writes.Api, plural: str, namespace: str, name: str) -> objects.JsonObject:
    found = api.store.get(store.BucketId(plural, ""), store.entry_key(namespace, name))
    if found is None:
        raise statuses.not_found(statuses.ResourceName("", plural), name)
    return found.obj


def _node_of_pod(api: writes.Api, name: str) -> objects.JsonObject:
    found = api.store.get(store.BucketId("nodes", ""), name)
    if found is None:
        raise statuses.not_found(
            statuses.ResourceName("", "pods"), name
        )  # upstream puts the node's name in a pod's error
    return found.obj


def _check_log_options(query: Mapping[str, str], name: str) -> None:
    numbers = {
        field: requests.read_number(query, field)
        for field in ("sinceSeconds", "tailLines", "limitBytes")
        if field in query
    }
    since = query.get("sinceTime")
    if since is not None and not objects.is_rfc3339(since):
        text = (
            f'parsing time "{since}" as "{objects.TIME_LAYOUT}": cannot parse "{since}" as "2006"'
        )
        raise statuses.bad_request(text)
    errors: list[statuses.FieldError] = []
    if numbers.get("tailLines", 0) < 0:
        text = "must be greater than or equal to 0"
        errors.append(statuses.invalid_value("tailLines", numbers["tailLines"], text))
    if numbers.get("limitBytes", 1) < 1:
        errors.append(
            statuses.invalid_value("limitBytes", numbers["limitBytes"], "must be greater than 0")
        )
    if since is not None and "sinceSeconds" in numbers:
        text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(statuses.forbidden_field("[]", text))
    elif numbers.get("sinceSeconds", 1) < 1:
        text = "must be greater than 0"
        errors.append(statuses.invalid_value("sinceSeconds", numbers["sinceSeconds"], text))
    if errors:
        raise statuses.invalid("PodLogOptions", "", name, errors)


def _check_container(pod: objects.JsonObject, name: str, container: str) -> None:
    known = [
        each["name"] for field in _LISTS for each in objects.dig(pod, "spec", field, default=[])
    ]
    if container and container not in known:
        raise statuses.bad_request(f"container {container} is not valid for pod {name}")
    if not container and len(objects.dig(pod, "spec", "containers", default=[])) > 1:
        listed = " ".join(known)
        text = f"a container name must be specified for pod {name}, choose one of: [{listed}]"
        raise statuses.bad_request(text)


def _unreachable(api: writes.Api, plural: str, namespace: str, text: str) -> statuses.StatusError:
    """Return the error for `text`: the name of an object, or `scheme:name:port`."""
    parts = text.split(":")
    name, port = (parts[1], parts[2]) if len(parts) == 3 else (parts[0], ":".join(parts[1:]))
    obj = _object(api, plural, namespace, name)
    if plural == "nodes":
        return _refused(_address(obj), int(port) if port.isdigit() else _KUBELET)
    if plural == "pods":
        address = objects.dig(obj, "status", "podIP")
        return (
            _refused(address, port or "80")
            if address
            else statuses.bad_request("address not allowed")
        )
    ports = {
        str(each.get(key)) for each in objects.dig(obj, "spec", "ports") for key in ("name", "port")
    }
    if port and port not in ports:
        message = f'no service port {port} found for service "{name}"'
        return statuses.StatusError(503, "ServiceUnavailable", message)
    return statuses.not_found(
        statuses.ResourceName("", "services"), name
    )  # the service has no endpoints


def _address(node: objects.JsonObject) -> str:
    """Return the address of a node's kubelet, in upstream's order of preference."""
    addresses = objects.dig(node, "status", "addresses", default=[])
    for wanted in _ADDRESSES:
        for each in addresses:
            if each["type"] == wanted:
                return str(each["address"])
    raise statuses.StatusError(500, "", "no preferred addresses found; known addresses: []")


def _refused(address: str, port: int | str) -> statuses.StatusError:
    return statuses.StatusError(500, "", f"dial tcp {address}:{port}: connect: connection refused")
