"""Patches, conflicts, owners, finalizers: helpers for changing objects."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from navarchos.backoff import Backoff
from navarchos.client import (
    FEW_WRITERS,
    MANY_WRITERS,
    AlreadyExists,
    AlreadyOwned,
    Conflict,
    ConflictPolicy,
    NotFound,
    NotOwned,
    Resource,
    add_finalizer,
    controlled_by,
    has_finalizer,
    is_controlled_by,
    is_owned_by,
    merge_apply,
    merge_diff,
    not_controlled_by,
    not_owned_by,
    owned_by,
    owner_reference,
    remove_finalizer,
    retry_on_conflict,
)
from navarchos.client.errors import error_from_response
from navarchos.errors import ConfigError, Stopped
from navarchos.meta import Object, ObjectMeta, OwnerReference, ResourceVersion
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock

SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True, type=Object)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)


@pytest.mark.rule("CL-11")
@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
        ({"a": 3}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": None}, {}, {}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1]}, {"a": [True]}, {"a": [True]}),
        ({"a": {"b": None}}, {"a": {}}, {}),
    ],
)
def test_the_difference_is_the_smallest_merge_patch(
    before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
) -> None:
    found = merge_diff(before, after)
    assert repr(found) == repr(patch)
    assert merge_diff(merge_apply(before, found), after) == {}  # type: ignore[arg-type]  # objects


@pytest.mark.rule("CL-11")
def test_large_integers_keep_their_value() -> None:
    before, after = {"n": 9_223_372_036_854_775_806}, {"n": 9_223_372_036_854_775_807}
    assert merge_diff(before, after) == after


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        # The examples of RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_applying_follows_the_rfc(target: object, patch: object, expected: object) -> None:
    assert merge_apply(target, patch) == expected


def conflict(reason: str = "Conflict", code: int = 409) -> Exception:
    body = f'{{"reason":"{reason}"}}'.encode()
    return error_from_response(code, {}, body)


class Failing:
    """Fails a number of times, then returns the number of calls."""

    def __init__(self, times: int, error: Exception) -> None:
        self.calls = 0
        self._times = times
        self._error = error

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return self.calls


QUICK = ConflictPolicy(5, Backoff(1e-6, factor=1.0))


@pytest.mark.rule("CL-09")
def test_a_conflict_is_retried_until_the_write_succeeds() -> None:
    assert retry_on_conflict(Failing(4, conflict()), policy=QUICK) == 5


@pytest.mark.rule("CL-09")
def test_the_last_conflict_is_raised_when_the_tries_are_used_up() -> None:
    work = Failing(5, conflict())
    with pytest.raises(Conflict):
        retry_on_conflict(work, policy=QUICK)
    assert work.calls == 5


@pytest.mark.rule("CL-09")
@pytest.mark.parametrize(
    ("error", "expected"),
    [(conflict("AlreadyExists"), AlreadyExists), (conflict("NotFound", 404), NotFound)],
)
def test_only_a_conflict_is_retried(error: Exception, expected: type[Exception]) -> None:
    work = Failing(1, error)
    with pytest.raises(expected):
        retry_on_conflict(work, policy=QUICK)
    assert work.calls == 1


@pytest.mark.rule("CL-09")
def test_the_two_policies_are_those_of_client_go() -> None:
    few, many = FEW_WRITERS, MANY_WRITERS
    assert (few.tries, few.backoff.base, few.backoff.factor, few.backoff.jitter) == (
        5,
        0.01,
        1,
        0.1,
    )
    assert (many.tries, many.backoff.base, many.backoff.factor) == (4, 0.01, 5.0)
    with pytest.raises(ConfigError):
        ConflictPolicy(0, few.backoff)


@pytest.mark.rule("CL-09")
def test_the_waits_grow_as_the_policy_says(fake_clock: FakeClock) -> None:
    work = Failing(4, conflict())
    results: list[int] = []

    def run() -> None:
        policy = ConflictPolicy(5, MANY_WRITERS.backoff)
        results.append(retry_on_conflict(work, policy=policy, clock=fake_clock, rand=lambda: 0.5))

    thread = threading.Thread(
        target=run, name="nav-test-retry"
    )  # the fake clock waits for threads with this prefix
    thread.start()
    for wait in (0.0105, 0.0525, 0.2625, 1.3125):  # 10 ms, times five, and half of a tenth more
        fake_clock.settle()
        assert fake_clock.next_deadline() == pytest.approx(wait)
        fake_clock.advance(wait)
    thread.join(30)
    assert results == [5]


def test_a_stop_ends_the_retries() -> None:
    stop = StopToken()
    stop.stop("over")
    work = Failing(9, conflict())
    with pytest.raises(Stopped):
        retry_on_conflict(work, policy=QUICK, stop=stop)
    assert work.calls == 1


def thing(name: str, namespace: str = "", uid: str = "u") -> Object:
    return Object(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid))


def test_a_reference_has_the_fields_that_the_garbage_collector_needs() -> None:
    assert owner_reference(thing("a", "web"), SETS) == OwnerReference(
        api_version="apps/v1",
        kind="ReplicaSet",
        name="a",
        uid="u",
        controller=True,
        block_owner_deletion=True,
    )
    assert not owner_reference(thing("a"), NODES, controller=False).controller


def test_an_owner_that_is_not_on_the_server_is_refused() -> None:
    with pytest.raises(ConfigError):
        owner_reference(thing("a", uid=""), NODES)


@pytest.mark.rule("CL-04")
def test_one_controller_at_most() -> None:
    mine = thing("pod", "web").metadata
    references = controlled_by(mine, (), thing("a", "web"), SETS)
    with pytest.raises(AlreadyOwned) as caught:
        controlled_by(mine, references, thing("b", "web"), SETS)
    assert (caught.value.key, caught.value.owner.name) == ("web/pod", "a")
    assert owned_by(mine, references, thing("b", "web"), SETS)[1].controller is False


@pytest.mark.rule("CL-04")
def test_the_same_owner_in_another_version_is_replaced() -> None:
    mine = thing("pod", "web").metadata
    old = OwnerReference(
        api_version="apps/v1beta1", kind="ReplicaSet", name="a", uid="old", controller=True
    )
    other = OwnerReference(api_version="v1", kind="Node", name="n", uid="x")
    found = controlled_by(mine, (old, other), thing("a", "web", "new"), SETS)
    assert [(ref.kind, ref.uid) for ref in found] == [("Node", "x"), ("ReplicaSet", "new")]


@pytest.mark.rule("CL-04")
@pytest.mark.parametrize("block", [True, False])
def test_a_dependent_blocks_the_deletion_of_its_controller_by_default(block: bool) -> None:
    mine, owner = thing("pod", "web").metadata, thing("a", "web")
    (found,) = controlled_by(mine, (), owner, SETS, block_owner_deletion=block)
    assert (found.controller, found.block_owner_deletion) == (True, block)
    assert controlled_by(mine, (), owner, SETS)[0].block_owner_deletion is True
    (plain,) = owned_by(mine, (), owner, SETS)
    assert (plain.controller, plain.block_owner_deletion) == (False, False)


@pytest.mark.rule("CL-04")
@pytest.mark.rule("CL-06")
def test_an_owner_of_the_same_kind_and_name_in_another_group_is_another_one() -> None:
    mine, owner = thing("pod", "web").metadata, thing("a", "web")
    foreign = OwnerReference(
        api_version="example.com/v1", kind="ReplicaSet", name="a", uid="x", controller=True
    )
    with pytest.raises(AlreadyOwned):
        controlled_by(mine, (foreign,), owner, SETS)
    both = owned_by(mine, (foreign,), owner, SETS)
    assert [each.uid for each in both] == ["x", "u"]
    assert not is_owned_by((foreign,), owner, SETS)
    assert not_owned_by(mine, both, owner, SETS) == (foreign,)


@pytest.mark.rule("CL-06")
def test_an_owner_that_is_referred_to_twice_is_removed_twice() -> None:
    mine, owner = thing("pod", "web").metadata, thing("a", "web")
    (one,) = owned_by(mine, (), owner, SETS)
    assert not_owned_by(mine, (one, one), owner, SETS) == ()


@pytest.mark.rule("CL-05")
@pytest.mark.parametrize("namespace", ["other", ""])
def test_an_owner_cannot_own_beyond_its_namespace(namespace: str) -> None:
    mine = thing("pod", namespace).metadata
    with pytest.raises(ConfigError):
        controlled_by(mine, (), thing("a", "web"), SETS)


@pytest.mark.rule("CL-05")
@pytest.mark.parametrize("namespace", ["web", ""])
def test_a_cluster_scoped_owner_can_own_anywhere(namespace: str) -> None:
    assert controlled_by(thing("pod", namespace).metadata, (), thing("n"), NODES)


@pytest.mark.rule("CL-06")
def test_owners_are_found_by_group_kind_and_name() -> None:
    mine = thing("pod", "web").metadata
    plain = owned_by(mine, (), thing("a", "web"), SETS)
    managed = controlled_by(mine, (), thing("a", "web"), SETS)
    assert is_owned_by(plain, thing("a", "web", "another uid"), SETS)
    assert is_owned_by(managed, thing("a", "web"), SETS)
    assert not is_owned_by(plain, thing("b", "web"), SETS)
    assert not is_owned_by(plain, thing("a"), NODES)
    assert is_controlled_by(managed, thing("a", "web"), SETS)
    assert not is_controlled_by(plain, thing("a", "web"), SETS)
    assert not is_controlled_by((), thing("a", "web"), SETS)


@pytest.mark.rule("CL-06")
def test_a_reference_is_removed_and_the_others_stay() -> None:
    mine = thing("pod", "web").metadata
    one = controlled_by(mine, (), thing("a", "web"), SETS)
    two = owned_by(mine, one, thing("n"), NODES)
    assert not_owned_by(mine, two, thing("n"), NODES) == one
    assert not_controlled_by(mine, two, thing("a", "web"), SETS) == two[1:]


@pytest.mark.rule("CL-06")
def test_removing_a_missing_reference_is_an_error() -> None:
    mine = thing("pod", "web").metadata
    plain = owned_by(mine, (), thing("a", "web"), SETS)
    with pytest.raises(NotOwned) as caught:
        not_owned_by(mine, plain, thing("b", "web"), SETS)
    assert (caught.value.key, caught.value.kind, caught.value.name) == (
        "web/pod",
        "ReplicaSet",
        "b",
    )
    for references in ((), plain):
        with pytest.raises(NotOwned) as caught:
            not_controlled_by(mine, references, thing("a", "web"), SETS)
        assert caught.value.controller


@pytest.mark.rule("CL-07")
@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (add_finalizer, (), ["f"]),
        (add_finalizer, ("a",), ["a", "f"]),
        (add_finalizer, ("f",), None),
        (remove_finalizer, ("f", "a", "f"), ["a"]),
        (remove_finalizer, ("a",), None),
    ],
)
def test_finalizers_change_by_a_patch_bound_to_the_version_read(
    change: Callable[[ObjectMeta, str], dict[str, Any] | None],
    before: tuple[str, ...],
    after: list[str] | None,
) -> None:
    metadata = ObjectMeta(name="x", resource_version=ResourceVersion("7"), finalizers=before)
    patch = change(metadata, "f")
    if after is None:
        assert patch is None
    else:
        assert patch == {"metadata": {"finalizers": after, "resourceVersion": "7"}}


@pytest.mark.rule("CL-07")
def test_the_last_finalizer_is_removed_with_its_list() -> None:
    metadata = ObjectMeta(name="x", resource_version=ResourceVersion("7"), finalizers=("f",))
    assert has_finalizer(metadata, "f")
    patch = remove_finalizer(metadata, "f")
    assert patch is not None
    assert patch["metadata"] == {"finalizers": None, "resourceVersion": "7"}
