"""Small parts: durations, JSONPath, protobuf, rules, type tables."""

from typing import Any

import pytest

from navarchos.testing.apiserver.builtin import builtin_kinds
from navarchos.testing.apiserver.cel import compile_error, rule_errors
from navarchos.testing.apiserver.patches import apply_json_patch, apply_strategic_patch
from navarchos.testing.apiserver.protobuf import UnreadableProtobuf, decode_protobuf
from navarchos.testing.apiserver.schema import schema_from_openapi
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.tables.columns import find_path, human_duration
from navarchos.testing.apiserver.types import TYPES


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 120, "9h"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (10 * 365 * 86400, "10y"),
    ],
)
def test_durations_have_kubectls_form(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".list[0].n", ["x"]),
        (".list[*].n", ["x", "y"]),
        (".list[-1].n", ["y"]),
        ('.list[?(@.n=="y")].v', [2]),
        (r".a.dotted\.name", [3]),
        (".a['dotted.name']", [3]),
        (".none.at.all", []),
        (".list[7].n", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    obj = {
        "a": {"b": 1, "dotted.name": 3},
        "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}],
    }
    assert find_path(obj, path) == found


def test_every_field_of_every_type_refers_to_a_type_that_exists() -> None:
    for name in TYPES.names():
        TYPES.schema(name)
        TYPES.definition(name)
        for reference in TYPES.references(name):
            assert reference in TYPES.names()


def test_every_kind_has_a_unique_path() -> None:
    kinds = builtin_kinds()
    assert len({(k.group, k.version, k.plural) for k in kinds}) == len(kinds)
    assert all("metadata" in k.schema.properties for k in kinds)


NAMESPACE = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x21\n\x1d\n\x05fresh\x12\x00\x1a\x00"\x00*\x002\x00'
    b"8\x00B\x00Z\x06\n\x01a\x12\x01b\x12\x00"
)


def test_a_protobuf_namespace_is_read() -> None:
    assert decode_protobuf(NAMESPACE) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "fresh", "generation": 0, "labels": {"a": "b"}},
        "spec": {},
    }


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", NAMESPACE[:30], b"k8s\x00", NAMESPACE[:19] + b"\xff", NAMESPACE + b"\x2a\x01a"],
)
def test_an_unreadable_protobuf_is_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableProtobuf):
        decode_protobuf(raw)


def errors(rule: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    properties = {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "a-b": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "names": {"type": "array", "items": {"type": "string"}},
        "count": {"type": "integer"},
    }
    schema = schema_from_openapi(
        {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
    )
    found = rule_errors(value, schema) if old is None else rule_errors(value, schema, old)
    return [str(error) for error in found]


@pytest.mark.parametrize(
    "rule",
    [
        "self.name.startsWith('a') && self.name.lowerAscii() == 'abc'",
        "self.names.all(n, n.size() == 1) && self.names.exists(n, n == 'x')",
        "self.names.join(',') == 'x,y' && self.names.isSorted() && self.names.indexOf('y') == 1",
        "self.__namespace__ == 'n' && self.a__dash__b == 'c'",
        "self.at < timestamp('2030-01-01T00:00:00Z')",
        "!has(self.missing) || self.missing == 1",
        "self.count in [1, 2] && 'x' in self.names",
        "self.name.matches('^a.c$') && self.name.replace('a', 'b') == 'Abc' || true",
    ],
)
def test_rules_that_are_met_report_nothing(rule: str) -> None:
    value = {
        "name": "abc",
        "namespace": "n",
        "a-b": "c",
        "at": "2026-01-01T00:00:00Z",
        "names": ["x", "y"],
        "count": 1,
    }
    assert errors({"rule": rule}, value) == []


def test_a_broken_rule_reports_its_message() -> None:
    broken = {"rule": "self.count > 1", "message": "too few"}
    assert errors(broken, {"count": 1}) == ["<nil>: Invalid value: too few"]
    built = {"rule": "self.count > 1", "messageExpression": "'got ' + string(self.count)"}
    assert errors(built, {"count": 1}) == ["<nil>: Invalid value: got 1"]
    plain = {"rule": "self.count > 1", "fieldPath": ".count", "reason": "FieldValueForbidden"}
    assert errors(plain, {"count": 1}) == ["count: Forbidden: failed rule: self.count > 1"]


def test_a_rule_that_fails_to_evaluate_is_broken() -> None:
    assert "evaluating rule" in errors({"rule": "self.name == 'x'"}, {})[0]


def test_transition_rules_are_for_changes_only() -> None:
    rule = {"rule": "self.count >= oldSelf.count", "message": "no way back"}
    assert errors(rule, {"count": 1}) == []
    assert errors(rule, {"count": 1}, {"count": 1}) == []
    assert "no way back" in errors(rule, {"count": 1}, {"count": 2})[0]


def test_a_rule_that_does_not_compile_has_a_reason() -> None:
    assert compile_error("self.a == 1") == ""
    assert compile_error("self.a ==") != ""


def test_strategic_patches_keep_the_order_that_the_client_set() -> None:
    schema = TYPES.schema("core.PodSpec")
    target = {"containers": [{"name": "a"}, {"name": "b"}]}
    patch = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "i"}],
    }
    found = apply_strategic_patch(target, patch, schema)
    assert [c["name"] for c in found["containers"]] == ["c", "b", "a"]


def test_strategic_patches_retain_the_keys_they_name() -> None:
    schema = TYPES.schema("apps.DeploymentSpec")
    target = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert apply_strategic_patch(target, patch, schema) == {"strategy": {"type": "Recreate"}}


def test_strategic_patches_replace_by_directive() -> None:
    schema = TYPES.schema("core.PodSpec")
    target = {"containers": [{"name": "a"}], "nodeSelector": {"x": "y"}}
    patch = {
        "containers": [{"name": "b"}, {"$patch": "replace"}],
        "nodeSelector": {"$patch": "replace", "z": "1"},
    }
    expected = {"containers": [{"name": "b"}], "nodeSelector": {"z": "1"}}
    assert apply_strategic_patch(target, patch, schema) == expected


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ({"op": "replace", "path": "/a/new", "value": 2}, {"a": {"x": 1, "new": 2}}),
        ({"op": "test", "path": "/a/none", "value": None}, {"a": {"x": 1}}),
        ({"op": "test", "path": "/a/none"}, {"a": {"x": 1}}),
    ],
)
def test_a_json_patch_treats_an_absent_key_as_json_patch_v4_does(
    step: dict[str, Any], result: dict[str, Any]
) -> None:
    assert apply_json_patch({"a": {"x": 1}}, [step]) == result


@pytest.mark.parametrize(
    "step",
    [
        {"op": "append", "path": "/a/s", "value": "y"},
        {"op": "test", "path": "/a/none", "value": 1},
        {"op": "test", "path": "/none/x", "value": None},
        {"op": "test", "path": "/a/t", "value": 1},
        {"op": "replace", "path": "/a/l/2", "value": 1},
        {"op": "remove", "path": "/a/none"},
        {"op": "add", "path": 5, "value": 1},
        {"op": "add", "path": "/a/x/y", "value": 1},
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_invalid(step: dict[str, Any]) -> None:
    target = {"a": {"s": "x", "t": True, "l": [1, 2], "x": 1}}
    with pytest.raises(StatusError) as refused:
        apply_json_patch(target, [step])
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert target == {"a": {"s": "x", "t": True, "l": [1, 2], "x": 1}}
