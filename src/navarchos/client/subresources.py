"""Subresources of another kind: scales, and tokens of service accounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from navarchos.client.decoding import is_untyped
from navarchos.client.resource import Resource
from navarchos.errors import ConfigError
from navarchos.meta import Object, parse_time
from navarchos.structs import prepare_decoding

__all__ = [
    "SCALE",
    "AccountToken",
    "Scale",
    "ScaleSpec",
    "ScaleStatus",
    "account_token",
    "kind_of",
    "token_request",
]

SCALE: Final = "scale"


class ScaleSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The wanted size."""

    replicas: int = 0


class ScaleStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The present size; `selector` is the label selector of the pods, as a string."""

    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True):
    """`autoscaling/v1` Scale: the size of a workload, with the metadata of the workload."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A token of a service account.

    Attributes:
        token: The token. Not in the `repr`.
        expires: The time of expiry; servers may shorten the requested time.
    """

    token: str = field(repr=False)
    expires: datetime


def kind_of(resource: Resource[Any], subresource: str) -> Resource[Any]:
    """Return the resource of the objects of a subresource.

    Raises:
        ConfigError: The response would be decoded into a wrong type.
    """
    if subresource != SCALE:
        return resource
    if not (is_untyped(resource.type) or issubclass(resource.type, Scale)):
        rule = f"a scale is not a {resource.kind}: use get_scale and set_scale, or projected(Scale)"
        raise ConfigError("subresource", subresource, rule)
    return replace(resource, group="autoscaling", version="v1", kind="Scale")


def token_request(
    audiences: Sequence[str], expiration_seconds: int | None, bound_to: Mapping[str, str] | None
) -> Mapping[str, object]:
    """Return an `authentication.k8s.io/v1` TokenRequest."""
    spec: dict[str, object] = {"audiences": list(audiences)} if audiences else {}
    if expiration_seconds is not None:
        spec["expirationSeconds"] = expiration_seconds
    if bound_to is not None:
        spec["boundObjectRef"] = dict(bound_to)
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


@prepare_decoding
class _TokenStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str
    expiration_timestamp: str


def account_token(response: Mapping[str, object]) -> AccountToken:
    """Return the token of a response.

    Raises:
        ValueError: The response has no token.
    """
    status = msgspec.convert(response.get("status"), _TokenStatus)
    return AccountToken(status.token, parse_time(status.expiration_timestamp))
