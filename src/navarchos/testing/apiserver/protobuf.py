"""Protobuf bodies of the few kinds that kubectl's typed clients send.

kubectl 1.32 and later write some built-in kinds as `application/vnd.kubernetes.protobuf`: in
`create namespace`, `create deployment`, `drain` and others. Responses are JSON, which these clients
accept.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from navarchos.testing.apiserver import objects

__all__ = ["PROTOBUF", "UnreadableProtobuf", "decode_protobuf"]

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
"""The media type."""

_MAGIC: Final = b"k8s\x00"
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TABLE: Final = """
Unknown 1:typeMeta:TypeMeta 2:raw:raw
TypeMeta 1:apiVersion:str 2:kind:str
ObjectMeta 1:name:str 2:generateName:str 3:namespace:str 5:uid:str 6:resourceVersion:str
ObjectMeta 7:generation:int 8:creationTimestamp:time 9:deletionTimestamp:time
ObjectMeta 10:deletionGracePeriodSeconds:int 11:labels:{str} 12:annotations:{str}
ObjectMeta 13:ownerReferences:[OwnerReference] 14:finalizers:[str]
OwnerReference 1:kind:str 3:name:str 4:uid:str 5:apiVersion:str 6:controller:bool
OwnerReference 7:blockOwnerDeletion:bool
Preconditions 1:uid:str 2:resourceVersion:str
DeleteOptions 1:gracePeriodSeconds:int 2:preconditions:Preconditions 3:orphanDependents:bool
DeleteOptions 4:propagationPolicy:str 5:dryRun:[str]
Eviction 1:metadata:ObjectMeta 2:deleteOptions:DeleteOptions
Namespace 1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:NamespaceStatus
NamespaceSpec 1:finalizers:[str]
NamespaceStatus 1:phase:str
ConfigMap 1:metadata:ObjectMeta 2:data:{str} 3:binaryData:{bytes} 4:immutable:bool
Secret 1:metadata:ObjectMeta 2:data:{bytes} 3:type:str 4:stringData:{str} 5:immutable:bool
ServiceAccount 1:metadata:ObjectMeta 4:automountServiceAccountToken:bool
Lease 1:metadata:ObjectMeta 2:spec:LeaseSpec
LeaseSpec 1:holderIdentity:str 2:leaseDurationSeconds:int 3:acquireTime:micro 4:renewTime:micro
LeaseSpec 5:leaseTransitions:int
SelfSubjectAccessReview 1:metadata:ObjectMeta 2:spec:AccessSpec 3:status:skip
SelfSubjectReview 1:metadata:ObjectMeta 2:status:skip
SelfSubjectRulesReview 1:metadata:ObjectMeta 2:spec:RulesSpec 3:status:skip
RulesSpec 1:namespace:str
TokenRequest 1:metadata:ObjectMeta 2:spec:TokenSpec 3:status:skip
TokenSpec 1:audiences:[str] 3:boundObjectRef:BoundObject 4:expirationSeconds:int
BoundObject 1:kind:str 2:apiVersion:str 3:name:str 4:uid:str
AccessSpec 1:resourceAttributes:ResourceAttributes 2:nonResourceAttributes:PathAttributes
ResourceAttributes 1:namespace:str 2:verb:str 3:group:str 4:version:str 5:resource:str
ResourceAttributes 6:subresource:str 7:name:str
PathAttributes 1:path:str 2:verb:str
LabelSelector 1:matchLabels:{str} 2:matchExpressions:[LabelRequirement]
LabelRequirement 1:key:str 2:operator:str 3:values:[str]
Deployment 1:metadata:ObjectMeta 2:spec:DeploymentSpec 3:status:skip
DeploymentSpec 1:replicas:int 2:selector:LabelSelector 3:template:PodTemplate 4:strategy:Strategy
DeploymentSpec 5:minReadySeconds:int 6:revisionHistoryLimit:int 7:paused:bool
DeploymentSpec 9:progressDeadlineSeconds:int
Strategy 1:type:str
PodTemplate 1:metadata:ObjectMeta 2:spec:PodSpec
PodSpec 2:containers:[Container] 3:restartPolicy:str 4:terminationGracePeriodSeconds:int
PodSpec 5:activeDeadlineSeconds:int 6:dnsPolicy:str 7:nodeSelector:{str} 8:serviceAccountName:str
PodSpec 9:serviceAccount:str 10:nodeName:str 11:hostNetwork:bool 12:hostPID:bool 13:hostIPC:bool
PodSpec 16:hostname:str 17:subdomain:str 19:schedulerName:str 24:priorityClassName:str
Container 1:name:str 2:image:str 3:command:[str] 4:args:[str] 5:workingDir:str
Container 6:ports:[ContainerPort] 8:resources:Resources 13:terminationMessagePath:str
Container 14:imagePullPolicy:str 16:stdin:bool 17:stdinOnce:bool 18:tty:bool
Container 20:terminationMessagePolicy:str
ContainerPort 1:name:str 2:hostPort:int 3:containerPort:int 4:protocol:str 5:hostIP:str
Resources 1:limits:{Quantity} 2:requests:{Quantity}
Job 1:metadata:ObjectMeta 2:spec:JobSpec 3:status:skip
JobSpec 1:parallelism:int 2:completions:int 3:activeDeadlineSeconds:int 4:selector:LabelSelector
JobSpec 6:template:PodTemplate 7:backoffLimit:int
PodDisruptionBudget 1:metadata:ObjectMeta 2:spec:BudgetSpec 3:status:skip
BudgetSpec 1:minAvailable:amount 2:selector:LabelSelector 3:maxUnavailable:amount
BudgetSpec 4:unhealthyPodEvictionPolicy:str
Role 1:metadata:ObjectMeta 2:rules:[PolicyRule]
ClusterRole 1:metadata:ObjectMeta 2:rules:[PolicyRule]
PolicyRule 1:verbs:[str] 2:apiGroups:[str] 3:resources:[str] 4:resourceNames:[str]
PolicyRule 5:nonResourceURLs:[str]
RoleBinding 1:metadata:ObjectMeta 2:subjects:[Subject] 3:roleRef:RoleRef
ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:[Subject] 3:roleRef:RoleRef
Subject 1:kind:str 2:apiGroup:str 3:name:str 4:namespace:str
RoleRef 1:apiGroup:str 2:kind:str 3:name:str
"""

_Fields = dict[int, tuple[str, str]]


def _read_table() -> Mapping[str, _Fields]:
    found: dict[str, _Fields] = {}
    for line in _TABLE.strip().splitlines():
        name, *fields = line.split()
        for field in fields:
            number, label, kind = field.split(":", 2)
            found.setdefault(name, {})[int(number)] = (label, kind)
    return found


_MESSAGES: Final = _read_table()
_KINDS: Final = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "DeleteOptions",
        "Deployment",
        "Eviction",
        "Job",
        "Lease",
        "Namespace",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Secret",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "ServiceAccount",
        "TokenRequest",
    }
)


class UnreadableProtobuf(Exception):
    """The kind has no table, or the bytes are not a protobuf message."""


def decode_protobuf(raw: bytes) -> objects.JsonObject:
    """Return the object in a protobuf body.

    Raises:
        UnreadableProtobuf: The kind has no table above, or the body is not protobuf.
    """
    if not raw.startswith(_MAGIC):
        raise UnreadableProtobuf("provided data does not appear to be a protobuf message")
    try:
        envelope = _message("Unknown", raw[len(_MAGIC) :])
        head: objects.JsonObject = envelope.get("typeMeta") or {}
        kind = str(head.get("kind") or "")
        if kind not in _KINDS:
            raise UnreadableProtobuf(f"no protobuf table for {kind or 'an object without kind'}")
        return {**head, **_message(kind, envelope.get("raw") or b"")}
    except (IndexError, UnicodeDecodeError, TypeError) as error:
        raise UnreadableProtobuf(str(error)) from error


def _message(name: str, raw: bytes) -> objects.JsonObject:
    """Decode one message; empty values count as absent, as in Go's JSON."""
    fields = _MESSAGES[name]
    found: objects.JsonObject = {}
    for number, value in _pairs(raw):
        label, kind = fields.get(number, ("", ""))
        if label:
            _store(found, label, kind, value)
        elif value:
            # Refuse the body rather than lose a field of it.
            raise UnreadableProtobuf(f"no table for field {number} of {name}")
    return found


def _store(found: objects.JsonObject, label: str, kind: str, value: objects.JsonValue) -> None:
    if kind.startswith("["):
        found.setdefault(label, []).append(_value(kind[1:-1], value))
    elif kind.startswith("{"):
        entry = dict(_pairs(value))
        key = bytes(entry.get(1, b"")).decode()
        found.setdefault(label, {})[key] = _value(kind[1:-1], entry.get(2, b""))
    else:
        decoded = _value(kind, value)
        if decoded is not None and decoded != "":
            found[label] = decoded


def _value(kind: str, value: objects.JsonValue) -> objects.JsonValue:
    convert = _SCALARS.get(kind)
    return _message(kind, value) if convert is None else convert(value)


def _skip(_: objects.JsonValue) -> None:
    """Omit a field that the server sets itself."""


def _amount(raw: bytes) -> objects.JsonValue:
    parts = dict(_pairs(raw))
    return bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(int(parts.get(2, 0)))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _time(raw: bytes) -> datetime | None:
    parts = dict(_pairs(raw))
    if not parts:
        return None
    nanoseconds = int(parts.get(2, 0))
    return _UNIX_EPOCH + timedelta(seconds=int(parts.get(1, 0)), microseconds=nanoseconds // 1000)


def _second(raw: bytes) -> str | None:
    at = _time(raw)
    return None if at is None else objects.timestamp(at)


def _microsecond(raw: bytes) -> str | None:
    at = _time(raw)
    return None if at is None else objects.micro_timestamp(at)


def _pairs(raw: bytes) -> Iterator[tuple[int, objects.JsonValue]]:
    """Iterate the fields of a message: number, and integer or bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, at = _varint(raw, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise UnreadableProtobuf(f"wire type {wire}")
        if at + length > len(raw):
            raise UnreadableProtobuf("unexpected end of the message")
        yield tag >> 3, raw[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


_SCALARS: Final[Mapping[str, Callable[[objects.JsonValue], objects.JsonValue]]] = {
    "str": lambda value: bytes(value).decode(),
    "int": _signed,
    "bool": bool,
    "bytes": lambda value: base64.b64encode(value).decode(),
    "raw": bytes,
    "time": _second,
    "micro": _microsecond,
    "skip": _skip,
    "amount": _amount,
    "Quantity": lambda value: bytes(dict(_pairs(value)).get(1, b"")).decode(),
}
