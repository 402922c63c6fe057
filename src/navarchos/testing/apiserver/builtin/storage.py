"""Volumes and claims: the defaults that kubectl shows."""

from typing import Final

from navarchos.testing.apiserver.kinds import Strategy
from navarchos.testing.apiserver.objects import JsonObject, dig
from navarchos.testing.apiserver.status import FieldError, required

__all__ = ["CLAIM", "CLASS", "VOLUME"]


def _default_class(obj: JsonObject) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _default_claim(obj: JsonObject) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _validate_claim(obj: JsonObject) -> list[FieldError]:
    errors = []
    if not obj["spec"].get("accessModes"):
        errors.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not dig(obj, "spec", "resources", "requests", "storage"):
        errors.append(required("spec.resources[storage]"))
    return errors


def _default_volume(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


CLAIM: Final = Strategy(returns_deleted=True, default=_default_claim, validate=_validate_claim)
VOLUME: Final = Strategy(returns_deleted=True, default=_default_volume)
CLASS: Final = Strategy(returns_deleted=True, default=_default_class)
