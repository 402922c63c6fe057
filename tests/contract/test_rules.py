"""Rules of custom kinds in CEL (`x-kubernetes-validations`): their variables and messages."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases.waiting import wait_for
from tests.contract.conftest import DEFINITIONS, defined
from tests.contract.exchanges import Http
from tests.contract.objects import GROUP, widget_definition

TEXT: dict[str, Any] = {"type": "string", "maxLength": 50}
NUMBER = {"type": "integer"}
GOT = "'got ' + (self > 8 ? 'much' : 'some')"


def ruled(schema: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": list(rules)}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "maxItems": 5, "items": items, **more}


NAMED = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "value": ruled(NUMBER, {"rule": "self >= oldSelf"})},
}
FIELDS: dict[str, Any] = {
    "fixed": ruled(TEXT, {"rule": "self == oldSelf", "message": "it stays"}),
    "grows": ruled(NUMBER, {"rule": "self >= oldSelf"}),
    "once": ruled(
        TEXT,
        {
            "rule": "!oldSelf.hasValue() || oldSelf.value() == self",
            "optionalOldSelf": True,
            "message": "once and for all",
        },
    ),
    "born": ruled(
        TEXT,
        {"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": True},
    ),
    "told": ruled(NUMBER, {"rule": "self < 5", "messageExpression": GOT}),
    "both": ruled(
        NUMBER,
        {
            "rule": "self < 5",
            "messageExpression": GOT,
            "message": "less!",
        },
    ),
    "broken": ruled(
        NUMBER,
        {"rule": "self < 5", "messageExpression": "string(1 / (self - self))", "message": "less!"},
    ),
    "blank": ruled(NUMBER, {"rule": "self < 5", "messageExpression": "'  '", "message": "less!"}),
    "forbidden": ruled(NUMBER, {"rule": "self < 5", "reason": "FieldValueForbidden"}),
    "required": ruled(NUMBER, {"rule": "self < 5", "reason": "FieldValueRequired"}),
    "duplicate": ruled(NUMBER, {"rule": "self < 5", "reason": "FieldValueDuplicate"}),
    "pair": ruled(
        {"type": "object", "properties": {"low": NUMBER, "high": NUMBER, "two-words": NUMBER}},
        {"rule": "self.low <= self.high", "fieldPath": ".low", "message": "low above high"},
        {"rule": "!has(self.two__dash__words) || self.two__dash__words > 0"},
    ),
    "duplicates": ruled(
        {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}},
        {"rule": "self.a != self.b", "fieldPath": ".b", "reason": "FieldValueDuplicate"},
    ),
    "needs": ruled(
        {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}},
        {
            "rule": "!has(self.a) || has(self.b)",
            "fieldPath": ".b",
            "reason": "FieldValueRequired",
            "message": "a needs b",
        },
    ),
    "map": ruled(
        {
            "type": "object",
            "maxProperties": 5,
            "additionalProperties": ruled(TEXT, {"rule": "self != 'x'"}),
        },
        {"rule": "self.all(key, key.startsWith('a'))", "message": "keys begin with a"},
    ),
    "items": listed(ruled(NUMBER, {"rule": "self % 2 == 0", "message": "even only"})),
    "named": listed(
        NAMED, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    ),
    "set": ruled(
        listed(TEXT, **{"x-kubernetes-list-type": "set"}),
        {"rule": "oldSelf.all(x, x in self)", "message": "nothing leaves"},
    ),
    "plain": ruled(listed(NUMBER), {"rule": "self.sum() < 10"}, {"rule": "self.isSorted()"}),
    "at": ruled(
        {"type": "string", "format": "date-time"},
        {"rule": "self.getFullYear() > 2000", "message": "too old"},
    ),
    "span": ruled(
        {"type": "string", "format": "duration"},
        {"rule": "self < duration('1h')", "message": "too long"},
    ),
    "share": ruled({"type": "number"}, {"rule": "self < 0.5"}),
    "either": ruled(
        {"x-kubernetes-int-or-string": True},
        {"rule": "type(self) == int ? self < 5 : self.matches('^[0-4]%$')", "message": "too much"},
    ),
    "quantity": ruled(
        TEXT,
        {
            "rule": "isQuantity(self) && quantity(self).isLessThan(quantity('1Gi'))",
            "message": "less than 1Gi",
        },
    ),
    "url": ruled(TEXT, {"rule": "isURL(self) && url(self).getScheme() == 'https'"}),
    "address": ruled(TEXT, {"rule": "isIP(self) && ip(self).family() == 4"}),
    "words": ruled(
        {"type": "string", "maxLength": 10},
        {"rule": "self.split(',').size() < 3 && self.replace(',', '').lowerAscii() == self.trim()"},
    ),
    "found": ruled(TEXT, {"rule": "self.find('[0-9]+') == '' || int(self.find('[0-9]+')) < 100"}),
    "unset": ruled({"type": "object", "properties": {"a": NUMBER}}, {"rule": "self.a < 5"}),
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": FIELDS}},
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name != 'nobody'", "message": "nobody is nobody"}
    ],
}
DEFINITION = widget_definition("verdicts", SCHEMA)


@pytest.fixture(scope="session")
def verdicts(admin: Http) -> Iterator[str]:
    """The path of a custom kind with many rules."""
    with defined(admin, DEFINITION) as path:
        yield path


def verdict(**spec: Any) -> dict[str, Any]:
    kind = DEFINITION["spec"]["names"]["kind"]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }


GOOD: dict[str, dict[str, Any]] = {
    "no-past": {"fixed": "a", "grows": 1, "once": "a"},
    "born": {"born": "new"},
    "small": {"told": 1, "both": 1, "forbidden": 1},
    "pair": {"pair": {"low": 1, "high": 2, "two-words": 1}},
    "map": {"map": {"a1": "b"}},
    "items": {"items": [2, 4], "plain": [1, 2, 3]},
    "at": {"at": "2020-01-01T00:00:00Z", "span": "30m"},
    "share": {"share": 0, "either": 4},
    "text": {"either": "4%"},
    "quantity": {"quantity": "500Mi"},
    "url": {"url": "https://example.com/a", "address": "127.0.0.1"},
    "words": {"words": "ab", "found": "a99"},
}


@pytest.mark.parametrize("what", GOOD)
def test_a_rule_that_is_met_reports_nothing(http: Http, verdicts: str, what: str) -> None:
    reply = http("POST", verdicts, verdict(**GOOD[what]), dryRun="All")
    assert reply.code == 201, reply.body


BAD: dict[str, dict[str, Any]] = {
    "born": {"born": "old"},
    "message-expression": {"told": 6},
    "message-expression-and-message": {"both": 6},
    "message-expression-that-fails": {"broken": 6},
    "message-expression-that-is-blank": {"blank": 6},
    "forbidden": {"forbidden": 6},
    "required": {"required": 6},
    "duplicate": {"duplicate": 6},
    "field-path": {"pair": {"low": 3, "high": 2}},
    "escaped-name": {"pair": {"low": 1, "high": 2, "two-words": 0}},
    "duplicate-at-path": {"duplicates": {"a": 1, "b": 1}},
    "required-at-path": {"needs": {"a": 1}},
    "keys": {"map": {"b": "c"}},
    "values": {"map": {"a": "x"}},
    "items": {"items": [2, 3, 5]},
    "sum": {"plain": [5, 6]},
    "unsorted": {"plain": [2, 1]},
    "date": {"at": "1999-01-01T00:00:00Z"},
    "duration": {"span": "2h"},
    "number": {"share": 1},
    "either-number": {"either": 5},
    "either-text": {"either": "5%"},
    "quantity": {"quantity": "2Gi"},
    "no-quantity": {"quantity": "much"},
    "url": {"url": "http://example.com"},
    "address": {"address": "::1"},
    "words": {"words": "a, B"},
    "found": {"found": "a100"},
    "no-such-key": {"unset": {}},
    "several": {"told": 6, "pair": {"low": 3, "high": 2}},
}


@pytest.mark.parametrize("what", BAD)
def test_a_broken_rule_is_reported(http: Http, verdicts: str, what: str) -> None:
    reply = http("POST", verdicts, verdict(**BAD[what]), dryRun="All")
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body


def test_a_rule_may_use_the_name(http: Http, verdicts: str) -> None:
    nobody = verdict()
    nobody["metadata"]["name"] = "nobody"
    assert http("POST", verdicts, nobody, dryRun="All").code == 422


# The old object, the new one, and whether the change is allowed.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the-same": ({"fixed": "a"}, {"fixed": "a", "told": 1}, True),
    "another": ({"fixed": "a"}, {"fixed": "b"}, False),
    "first": ({}, {"fixed": "a"}, True),
    "last": ({"fixed": "a"}, {"fixed": None}, True),
    "more": ({"grows": 1}, {"grows": 2}, True),
    "less": ({"grows": 2}, {"grows": 1}, False),
    "once": ({"once": "a"}, {"once": "b"}, False),
    "once-first": ({}, {"once": "a"}, True),
    "an-item": (
        {"named": [{"name": "a", "value": 2}]},
        {"named": [{"name": "b", "value": 1}, {"name": "a", "value": 1}]},
        False,
    ),
    "a-new-item": (
        {"named": [{"name": "a", "value": 2}]},
        {"named": [{"name": "b", "value": 1}]},
        True,
    ),
    "a-larger-set": ({"set": ["a"]}, {"set": ["b", "a"]}, True),
    "a-smaller-set": ({"set": ["a", "b"]}, {"set": ["b"]}, False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_rule_may_use_the_old_object(http: Http, verdicts: str, what: str) -> None:
    before, after, allowed = CHANGES[what]
    try:
        http.create(verdicts, verdict(**before))
        reply = http.merge(f"{verdicts}/a", {"spec": after})
        assert reply.code == (200 if allowed else 422), reply.body
    finally:
        with http.unrecorded():
            http("DELETE", f"{verdicts}/a")


def test_an_object_that_broke_a_rule_before_may_stay(http: Http) -> None:
    spec = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}}
    lax = widget_definition("relics", {"type": "object", "properties": {"spec": spec}})
    name = lax["metadata"]["name"]
    strict = copy.deepcopy(lax["spec"]["versions"])
    fields = strict[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["a"] = ruled(NUMBER, {"rule": "self < 5", "message": "less than 5"})
    body = {"apiVersion": f"{GROUP}/v1", "kind": lax["spec"]["names"]["kind"]}
    body |= {"metadata": {"name": "a"}, "spec": {"a": 6, "b": 1}}
    with defined(http, lax) as path:
        with http.unrecorded():
            http.create(path, body)
            assert http.merge(f"{DEFINITIONS}/{name}", {"spec": {"versions": strict}}).code == 200
            another = {**body, "metadata": {"name": "b"}}
            wait_for("the rule", lambda: http("POST", path, another, dryRun="All").code == 422)
        assert http.merge(f"{path}/a", {"spec": {"b": 2}}).code == 200
        assert http.merge(f"{path}/a", {"spec": {"a": 7}}).code == 422


UNFIT: dict[str, dict[str, Any]] = {
    "no-rule": {"rule": ""},
    "syntax": {"rule": "self =="},
    "message-of-two-lines": {"rule": "self == 'a'", "message": "a\nb"},
    "blank-message": {"rule": "self == 'a'", "message": "  "},
    "message-expression-syntax": {"rule": "self == 'a'", "messageExpression": "'a' +"},
    "unknown-reason": {"rule": "self == 'a'", "reason": "Because"},
    "field-path-to-nowhere": {"rule": "self == 'a'", "fieldPath": ".other"},
    "optional-without-the-past": {"rule": "self == 'a'", "optionalOldSelf": True},
    "two-lines-without-a-message": {"rule": "self ==\n 'a'"},
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_malformed_rule_is_refused_with_its_definition(http: Http, what: str) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": ruled(TEXT, UNFIT[what])}}},
    }
    reply = http("POST", DEFINITIONS, widget_definition("gizmos", schema), dryRun="All")
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
