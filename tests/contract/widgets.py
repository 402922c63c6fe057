"""A custom kind that uses all keywords of schemas."""

from typing import Any

from tests.contract.objects import GROUP, widget_definition

__all__ = ["WIDGETS", "widget_named"]

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "label": {"type": "string", "minLength": 2},
                "at": {"type": "string", "format": "date-time"},
                "amount": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "maybe": {"type": "string", "nullable": True},
                "names": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "weight": {"type": "integer", "default": 1},
                        },
                    },
                },
                "fixed": {
                    "type": "string",
                    "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "fixed is immutable"}
                    ],
                },
            },
            "x-kubernetes-validations": [{"rule": "self.size != 7", "message": "seven is unlucky"}],
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
WIDGETS = widget_definition(
    "widgets", SCHEMA, subresources={"status": {}}, additionalPrinterColumns=COLUMNS
)


def widget_named(name: str = "", **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name} if name else {"generateName": "w-"},
        "spec": {"size": 1, **spec},
    }
