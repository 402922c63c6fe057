"""Talking to a Kubernetes API server: configuration, verbs, watches, errors.

Begin with `Client.from_config()`, then `client.resource(RESOURCE)`.
"""

from navarchos.client.bodies import PatchType, Propagation
from navarchos.client.calls import RawResponse
from navarchos.client.client import Client
from navarchos.client.config import ClientConfig, load_config
from navarchos.client.conflicts import (
    FEW_WRITERS,
    MANY_WRITERS,
    ConflictPolicy,
    retry_on_conflict,
)
from navarchos.client.credentials import CredentialsFailed
from navarchos.client.decoding import ResourceList
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
    TlsFailed,
    TooManyRequests,
    TransportError,
    Unauthorized,
    WatchBroken,
    WatchError,
    WatchExpired,
    ignore_already_exists,
    ignore_not_found,
    ignore_terminating_namespace,
    is_namespace_terminating,
    is_resource_version_too_large,
)
from navarchos.client.finalizers import add_finalizer, has_finalizer, remove_finalizer
from navarchos.client.impersonation import Impersonation
from navarchos.client.options import ListOptions, WatchOptions
from navarchos.client.owners import (
    AlreadyOwned,
    NotOwned,
    controlled_by,
    is_controlled_by,
    is_owned_by,
    not_controlled_by,
    not_owned_by,
    owned_by,
    owner_reference,
)
from navarchos.client.pager import ItemPager
from navarchos.client.patches import merge_apply, merge_diff
from navarchos.client.reading import ResourceReader
from navarchos.client.resource import Resource
from navarchos.client.resource_client import ResourceClient
from navarchos.client.selectors import (
    FieldRequirement,
    FieldSelector,
    LabelSelectorRequirement,
    LabelSelectorSpec,
    Operator,
    Requirement,
    Selector,
)
from navarchos.client.status import Status, StatusCause
from navarchos.client.subresources import AccountToken, Scale, ScaleSpec, ScaleStatus
from navarchos.client.transport import (
    BufferedResponse,
    FunctionTransport,
    HttpRequest,
    Transport,
    WriteFence,
)
from navarchos.client.upserts import (
    Mutate,
    UpsertOutcome,
    UpsertResult,
    create_or_patch,
    create_or_update,
)
from navarchos.client.watching import EventType, WatchEvent, WatchStream

__all__ = [
    "FEW_WRITERS",
    "MANY_WRITERS",
    "AccountToken",
    "AlreadyExists",
    "AlreadyOwned",
    "ApiError",
    "ApiResource",
    "BadRequest",
    "BufferedResponse",
    "Client",
    "ClientConfig",
    "ClientError",
    "Conflict",
    "ConflictPolicy",
    "ConnectFailed",
    "CredentialsFailed",
    "DecodeError",
    "EventType",
    "Expired",
    "FieldRequirement",
    "FieldSelector",
    "Forbidden",
    "FunctionTransport",
    "HttpRequest",
    "Impersonation",
    "Invalid",
    "ItemPager",
    "LabelSelectorRequirement",
    "LabelSelectorSpec",
    "ListOptions",
    "MethodNotAllowed",
    "Mutate",
    "NotFound",
    "NotOwned",
    "Operator",
    "PatchType",
    "Propagation",
    "RawResponse",
    "RequestTimeout",
    "Requirement",
    "Resource",
    "ResourceClient",
    "ResourceList",
    "ResourceReader",
    "Scale",
    "ScaleSpec",
    "ScaleStatus",
    "Selector",
    "ServerError",
    "Status",
    "StatusCause",
    "TlsFailed",
    "TooManyRequests",
    "Transport",
    "TransportError",
    "Unauthorized",
    "UpsertOutcome",
    "UpsertResult",
    "WatchBroken",
    "WatchError",
    "WatchEvent",
    "WatchExpired",
    "WatchOptions",
    "WatchStream",
    "WriteFence",
    "add_finalizer",
    "controlled_by",
    "create_or_patch",
    "create_or_update",
    "has_finalizer",
    "ignore_already_exists",
    "ignore_not_found",
    "ignore_terminating_namespace",
    "is_controlled_by",
    "is_namespace_terminating",
    "is_owned_by",
    "is_resource_version_too_large",
    "load_config",
    "merge_apply",
    "merge_diff",
    "not_controlled_by",
    "not_owned_by",
    "owned_by",
    "owner_reference",
    "remove_finalizer",
    "retry_on_conflict",
]
