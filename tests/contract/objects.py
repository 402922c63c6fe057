"""The objects of the cases."""

from collections.abc import Callable
from typing import Any

__all__ = ["GROUP", "Make", "config_map", "pod", "widget_definition"]

GROUP = "contract.example.com"

Make = Callable[..., dict[str, Any]]
"""Makes an object and returns it."""


def config_map(name: str = "", **data: str) -> dict[str, Any]:
    metadata = {"name": name} if name else {"generateName": "map-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "pause:3"}]},
    }


def widget_definition(plural: str, schema: dict[str, Any], **version: object) -> dict[str, Any]:
    kind = plural.rstrip("s").capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }
