"""Talking to a Kubernetes API server: configuration, verbs, watches, errors.

Begin with `Client.from_config()`, then `client.resource(RESOURCE)`.
"""

from navarchos.client.bodies import PatchType, Propagation
from navarchos.client.calls import RawResponse
from navarchos.client.client import Client
from navarchos.client.config import ClientConfig, load_config
from navarchos.client.discovery import ApiResource
from navarchos.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    ClientError,
    Conflict,
    ConnectFailed,
    DecodeError,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    ServerError,
    Status,
    StatusCause,
    TlsFailed,
    TooManyRequests,
    TransportError,
    Unauthorized,
    WatchBroken,
    WatchError,
    WatchExpired,
    ignore_already_exists,
    ignore_not_found,
    is_resource_version_too_large,
)
from navarchos.client.resource import Resource
from navarchos.client.resource_client import ResourceClient, ResourceList
from navarchos.client.transport import BufferedAnswer, FunctionTransport, HttpRequest, Transport
from navarchos.client.watching import EventType, WatchEvent, WatchStream

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ApiResource",
    "BadRequest",
    "BufferedAnswer",
    "Client",
    "ClientConfig",
    "ClientError",
    "Conflict",
    "ConnectFailed",
    "DecodeError",
    "EventType",
    "Expired",
    "Forbidden",
    "FunctionTransport",
    "HttpRequest",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "PatchType",
    "Propagation",
    "RawResponse",
    "RequestTimeout",
    "Resource",
    "ResourceClient",
    "ResourceList",
    "ServerError",
    "Status",
    "StatusCause",
    "TlsFailed",
    "TooManyRequests",
    "Transport",
    "TransportError",
    "Unauthorized",
    "WatchBroken",
    "WatchError",
    "WatchEvent",
    "WatchExpired",
    "WatchStream",
    "ignore_already_exists",
    "ignore_not_found",
    "is_resource_version_too_large",
    "load_config",
]
