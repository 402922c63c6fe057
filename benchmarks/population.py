"""Make nodes and pods with the fields of real ones: about 11 KB of JSON per pod.

Two containers with environment, probes, resources and mounts; config, scratch and token
volumes; owner, labels and annotations; a status with conditions and container statuses;
and `managedFields` of the two writers of a pod, its controller and its kubelet.
"""

import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = ["NAMESPACES", "namespaces", "node", "node_name", "owners", "pod"]

NAMESPACES: Final = 20

JsonObject = dict[str, Any]

_CREATED: Final = "2026-01-10T09:00:00Z"
_APPS: Final = 300
_IMAGES: Final = 20
_REGISTRY: Final = "registry.example.com/team"
_MIX: Final = 2_654_435_761  # Knuth's constant: hashes of neighbouring numbers look unrelated


def namespaces() -> Iterator[JsonObject]:
    """Yield the namespaces of all pods."""
    for number in range(NAMESPACES):
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": _metadata(f"ns-{number}", "namespace", number),
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }


def owners() -> Iterator[JsonObject]:
    """Yield the ReplicaSets of all pods."""
    for number in range(_APPS):
        app, template = _names(number)
        labels = {"app": app, "pod-template-hash": template}
        yield {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                **_metadata(f"{app}-{template}", "replicaset", number),
                "namespace": f"ns-{number % NAMESPACES}",
                "labels": labels,
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": f"{_REGISTRY}/{app}"}]},
                },
            },
            "status": {"replicas": 1},
        }


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05d}"


def node(number: int) -> JsonObject:
    """Return a node that is Ready."""
    name = node_name(number)
    hexadecimal = f"{number:032x}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            **_metadata(name, "node", number),
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "node.kubernetes.io/instance-type": "large-16",
                "pool": f"pool-{number % 4}",
            },
        },
        "spec": {
            "podCIDR": f"10.{number // 256 % 256}.{number % 256}.0/24",
            "providerID": f"cloud:///zone-{number % 3}/i-{number:017x}",
        },
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "250"},
            "allocatable": {"cpu": "15800m", "memory": "60Gi", "pods": "250"},
            "conditions": [
                _node_condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                _node_condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                _node_condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                _node_condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": f"10.1.{number // 256 % 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": hexadecimal,
                "systemUUID": str(uuid.UUID(hexadecimal)),
                "bootID": str(uuid.UUID(hexadecimal)),
                "kernelVersion": "6.12.0",
                "osImage": "A Linux for containers 41",
                "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {
                    "names": [
                        f"{_REGISTRY}/app-{image}@sha256:{image:064x}",
                        f"{_REGISTRY}/app-{image}:v1.{image}",
                    ],
                    "sizeBytes": 123_456_789,
                }
                for image in range(_IMAGES)
            ],
        },
    }


def pod(number: int, on: str, annotations: Mapping[str, str] = MappingProxyType({})) -> JsonObject:
    """Return a pod that runs on a node."""
    app, template = _names(number)
    names = ("main", "sidecar")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(f"{app}-{template}-{number:05d}", "pod", number),
            "namespace": f"ns-{number % NAMESPACES}",
            "generation": 1,
            "generateName": f"{app}-{template}-",
            "labels": {
                "app": app,
                "pod-template-hash": template,
                "team": f"team-{number % 12}",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "8080",
                "checksum/config": f"{number % _APPS:064x}",
                **annotations,
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-{template}",
                    "uid": _uid("replicaset", number % _APPS),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [*_WRITERS],
        },
        "spec": {
            "nodeName": on,
            "containers": [_container(name, number) for name in names],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ],
            "volumes": _VOLUMES,
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.1.0.1",
            "hostIPs": [{"ip": "10.1.0.1"}],
            "podIP": f"10.2.{number // 256 % 256}.{number % 256}",
            "podIPs": [{"ip": f"10.2.{number // 256 % 256}.{number % 256}"}],
            "startTime": _CREATED,
            "qosClass": "Burstable",
            "conditions": [
                {
                    "type": each,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": _CREATED,
                }
                for each in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "containerStatuses": [_container_status(name, number) for name in names],
        },
    }


def _names(number: int) -> tuple[str, str]:
    """Return the names of a pod's application and of its template."""
    return f"app-{number % _APPS:03d}", f"{number % _APPS * _MIX % 2**32:08x}"


def _metadata(name: str, kind: str, number: int) -> JsonObject:
    return {"name": name, "uid": _uid(kind, number), "creationTimestamp": _CREATED}


def _uid(kind: str, number: int) -> str:
    """Return a uid that looks random and is the same in every run."""
    return str(uuid.UUID(int=_bits(kind, number), version=4))


def _bits(kind: str, number: int) -> int:
    """Return 128 pseudo-random bits that do not change between runs, unlike Python's hash."""
    mixed = number + 1
    for byte in kind.encode():
        mixed = (mixed ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return mixed


def _node_condition(kind: str, status: str, reason: str) -> JsonObject:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "kubelet has something to say about this",
        "lastHeartbeatTime": _CREATED,
        "lastTransitionTime": _CREATED,
    }


def _container(name: str, number: int) -> JsonObject:
    def probe(path: str, period: int) -> JsonObject:
        return {
            "httpGet": {"path": path, "port": name, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": period,
            "successThreshold": 1,
            "failureThreshold": 3,
        }

    port = 8080 if name == "main" else 9090
    own_name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return {
        "name": name,
        "image": f"{_REGISTRY}/{name}-{number % _APPS}:v1.2.{number % 7}",
        "args": [f"--listen=:{port}", "--log-level=info", f"--shard={number % 16}"],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": own_name},
            {"name": "REGION", "value": "region-1"},
            {"name": "DB_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
            *({"name": f"SETTING_{n}", "value": f"value-{n}-{number % 97}"} for n in range(8)),
        ],
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "250m", "memory": "512Mi"},
        },
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 5),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app"},
            {"name": "scratch", "mountPath": "/tmp"},
            {
                "name": "token",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _container_status(name: str, number: int) -> JsonObject:
    return {
        "name": name,
        "ready": True,
        "restartCount": 0,
        "started": True,
        "image": f"{_REGISTRY}/{name}-{number % _APPS}:v1.2.{number % 7}",
        "imageID": f"{_REGISTRY}/{name}@sha256:{number % _APPS:064x}",
        "containerID": f"containerd://{_bits(name, number):064x}",
        "state": {"running": {"startedAt": _CREATED}},
        "lastState": {},
    }


_VOLUMES: Final = [
    {"name": "config", "configMap": {"name": "config", "defaultMode": 420}},
    {"name": "scratch", "emptyDir": {}},
    {
        "name": "token",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
            ],
        },
    },
]


def _owned(*names: str, **inner: JsonObject) -> JsonObject:
    """Return the fields of an object in the notation of `managedFields`."""
    return {
        **{f"f:{name}": {} for name in names},
        **{f"f:{name}": fields for name, fields in inner.items()},
    }


def _entries(key: str, values: tuple[str, ...], fields: JsonObject) -> JsonObject:
    """Return the same for a list whose entries have a key."""
    return {
        ".": {},
        **{f'k:{{"{key}":"{value}"}}': {".": {}, **fields} for value in values},
    }


def _writer(name: str, fields: JsonObject, subresource: str = "") -> JsonObject:
    return {
        "manager": name,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }


_PROBE: Final = _owned(
    *("failureThreshold", "periodSeconds", "successThreshold", "timeoutSeconds"),
    httpGet=_owned("path", "port", "scheme"),
)

_WRITERS: Final = (
    _writer(
        "kube-controller-manager",
        _owned(
            metadata=_owned(
                "generateName",
                annotations=_owned("checksum/config", "prometheus.io/port", "prometheus.io/scrape"),
                labels=_owned("app", "pod-template-hash", "team"),
                ownerReferences=_entries("uid", (_uid("replicaset", 0),), {}),
            ),
            spec=_owned(
                *("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName"),
                *("securityContext", "serviceAccount", "serviceAccountName"),
                "terminationGracePeriodSeconds",
                containers=_entries(
                    "name",
                    ("main", "sidecar"),
                    _owned(
                        *("args", "image", "imagePullPolicy", "name"),
                        *("terminationMessagePath", "terminationMessagePolicy"),
                        env=_entries(
                            "name",
                            ("POD_NAME", "REGION", "DB_URL", *(f"SETTING_{n}" for n in range(8))),
                            _owned("name", "value"),
                        ),
                        livenessProbe=_PROBE,
                        ports=_entries(
                            "containerPort", ("8080",), _owned("containerPort", "name", "protocol")
                        ),
                        readinessProbe=_PROBE,
                        resources=_owned(
                            limits=_owned("cpu", "memory"), requests=_owned("cpu", "memory")
                        ),
                        volumeMounts=_entries(
                            "mountPath", ("/etc/app", "/tmp"), _owned("mountPath", "name")
                        ),
                    ),
                ),
                volumes=_entries("name", ("config", "scratch"), _owned("name", "configMap")),
            ),
        ),
    ),
    _writer(
        "kubelet",
        _owned(
            status=_owned(
                *("containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "startTime"),
                conditions=_entries(
                    "type",
                    ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"),
                    _owned("lastProbeTime", "lastTransitionTime", "status", "type"),
                ),
                podIPs=_entries("ip", ("10.2.0.1",), _owned("ip")),
            )
        ),
        "status",
    ),
)
