"""Label and field selectors."""

import pytest

from navarchos.client import (
    FieldSelector,
    LabelSelectorRequirement,
    LabelSelectorSpec,
    Operator,
    Requirement,
    Selector,
)
from navarchos.errors import ConfigError

LABELS = {"app": "web", "tier": "front", "size": "10", "empty": ""}


@pytest.mark.rule("LS-03")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("absent!=x", True),
        ("absent=x", False),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("absent in (x)", False),
        ("app notin (db,cache)", True),
        ("app notin (web)", False),
        ("absent notin (x)", True),
        ("app", True),
        ("absent", False),
        ("!app", False),
        ("!absent", True),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        ("size>9", True),
        ("size>10", False),
        ("size<11", True),
        ("app>1", False),
        ("absent>1", False),
        ("empty=", True),
        ("app=", False),
        ("empty in (,x)", True),
        (" app = web , ! absent ", True),
        ("in in (in)", False),
        ("kubernetes.io/role=worker", False),
    ],
)
def test_it_matches_as_the_server_does(text: str, expected: bool) -> None:
    selector = Selector.parse(text)
    assert selector.matches(LABELS) is expected
    assert Selector.parse(str(selector)) == selector


@pytest.mark.parametrize(
    "text",
    [
        "app=web,",
        ",app",
        "app in web",
        "app in (web",
        "app in ()x",
        "app web",
        "=web",
        "!",
        "!!app",
        "app=a=b",
        "app=we b",
        "app=-web",
        f"app={'x' * 64}",
        "a/b/c=d",
        "UPPER.io/x=d",
        "/x=d",
        "size>large",
        "(",
    ],
)
def test_a_grammar_error_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Selector.parse(text)
    assert caught.value.value is not None


def test_the_error_says_where_and_what_was_expected() -> None:
    with pytest.raises(ConfigError, match=r"after 'app=web,tier' there is '\(' instead of"):
        Selector.parse("app=web,tier(")


def test_the_text_is_the_form_of_the_api() -> None:
    text = "a=1,b in (x,y),c notin (x,y),d!=2,e,!f,g>3,h<4"
    assert str(Selector.parse(text)) == text


def test_a_spec_of_an_object_becomes_a_selector() -> None:
    spec = LabelSelectorSpec(
        match_labels={"app": "web"},
        match_expressions=(
            LabelSelectorRequirement(key="tier", operator="In", values=("front", "back")),
            LabelSelectorRequirement(key="x", operator="NotIn", values=("y",)),
            LabelSelectorRequirement(key="size", operator="Exists"),
            LabelSelectorRequirement(key="gone", operator="DoesNotExist"),
        ),
    )
    selector = Selector.from_spec(spec)
    assert str(selector) == "app=web,tier in (back,front),x!=y,size,!gone"
    assert selector.matches(LABELS)


@pytest.mark.parametrize(
    "entry",
    [
        LabelSelectorRequirement(key="a", operator="Like", values=("x",)),
        LabelSelectorRequirement(key="a", operator="Gt", values=("1",)),
        LabelSelectorRequirement(key="a", operator="In"),
        LabelSelectorRequirement(key="a", operator="Exists", values=("x",)),
        LabelSelectorRequirement(key="a b", operator="Exists"),
        LabelSelectorRequirement(key="a", operator="In", values=("b c",)),
    ],
)
def test_an_invalid_spec_is_refused(entry: LabelSelectorRequirement) -> None:
    with pytest.raises(ConfigError):
        Selector.from_spec(LabelSelectorSpec(match_expressions=(entry,)))


@pytest.mark.rule("LS-01")
def test_absent_means_nothing_and_empty_means_everything() -> None:
    assert Selector.from_spec(None).is_nothing
    assert Selector.from_spec(LabelSelectorSpec()).is_everything
    assert Selector.parse("").is_everything
    assert not Selector.parse("a").is_everything
    assert not Selector.nothing().matches(LABELS)
    assert Selector.everything().matches({})


@pytest.mark.rule("LS-01")
def test_nothing_still_means_nothing_when_the_server_reads_it() -> None:
    text = str(Selector.nothing())
    assert text
    reread = Selector.parse(text)
    assert reread.is_nothing
    assert not any(reread.matches(labels) for labels in ({}, {"nothing": ""}, LABELS))


def test_equal_requirements_are_equal_whatever_their_order() -> None:
    one = Requirement("a", Operator.IN, ("y", "x", "x"))
    assert one == Requirement("a", Operator.IN, ("x", "y"))
    assert Selector.from_labels({"b": "1", "a": "2"}) == Selector.parse("a=2,b=1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1,metadata.name!=b", True),
        ("spec.nodeName!=n1", False),
        ("status.phase=", True),
        (r"note=a\,b\=c\\d", True),
    ],
)
def test_fields_are_compared_for_equality(text: str, expected: bool) -> None:
    fields = {"spec.nodeName": "n1", "metadata.name": "a", "note": r"a,b=c\d"}
    selector = FieldSelector.parse(text)
    assert selector.matches(fields) is expected
    assert FieldSelector.parse(str(selector)) == selector


@pytest.mark.parametrize("text", ["spec.nodeName", "=x", "a=b=c", "a>b"])
def test_a_field_selector_that_compares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        FieldSelector.parse(text)


def test_a_field_selector_of_values_is_escaped() -> None:
    assert str(FieldSelector.of({"spec.nodeName": "n1", "a": "x,y"})) == r"spec.nodeName=n1,a=x\,y"
