"""Changes of cached objects, which all readers share."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.informers import make_informer

from navarchos.client import Resource
from navarchos.errors import ThreadCrashed
from navarchos.informers import CacheMutated, FactoryOptions, InformerFactory, SharedInformer
from navarchos.informers.mutation import MUTATION_VARIABLE, MutationDetector, mutation_detection
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def as_the_environment_says() -> Iterator[None]:
    with mutation_detection(None):
        yield


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MUTATION_VARIABLE, "1")


@pytest.fixture
def informer_of(fake_clock: FakeClock) -> Iterator[Make]:
    """Make informers whose objects may be changed; stop them when the test ends."""
    made: list[SharedInformer[Any]] = []

    def make(source: FakeSource[Any], **options: Any) -> SharedInformer[Any]:
        made.append(make_informer(source, clock=fake_clock, **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join()


def spoil(obj: Any) -> None:
    obj.metadata.labels["app"] = "spoilt"


@pytest.mark.rule("ST-15", "RT-27")
@pytest.mark.usefixtures("asked_for")
def test_a_change_of_a_cached_object_ends_the_informer_within_a_second_and_says_where(
    source: FakeSource[Any], informer_of: Make, thing: Make, fake_clock: FakeClock
) -> None:
    source.put(thing("a", labels={"app": "db"}))
    source.put(thing("b", labels={"app": "web"}))
    failures: list[BaseException] = []
    informer = informer_of(source, on_failure=failures.append)
    informer.start()
    fake_clock.advance(1)
    assert not failures
    spoil(informer.lister.get("b", "ns"))
    fake_clock.advance(1)
    assert informer.join()
    assert isinstance(informer.failure, CacheMutated)
    assert failures == [informer.failure]
    assert informer.failure.changed == ("ns/b.metadata.labels.app",)
    assert str(informer.failure).startswith(
        "cached objects of things were changed: ns/b.metadata.labels.app; they are shared"
    )
    with pytest.raises(ThreadCrashed):
        informer.run(StopToken())


@pytest.mark.rule("ST-15")
@pytest.mark.usefixtures("asked_for")
def test_a_change_of_what_objects_have_in_common_names_each_and_writes_out_the_first(
    source: FakeSource[Any], informer_of: Make, thing: Make, fake_clock: FakeClock
) -> None:
    for number in range(15):
        source.put(thing(f"a-{number:02}", labels={"app": "web"}))
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    spoil(informer.lister.get("a-00", "ns"))
    fake_clock.advance(1)
    assert informer.join()
    assert isinstance(informer.failure, CacheMutated)
    assert informer.failure.changed == tuple(
        f"ns/a-{number:02}.metadata.labels.app" for number in range(15)
    )
    assert "ns/a-09.metadata.labels.app ...;" in str(informer.failure)


@pytest.mark.rule("ST-15")
@pytest.mark.usefixtures("asked_for")
def test_an_update_does_not_hide_what_was_done_to_the_object_that_it_replaced(
    source: FakeSource[Any], informer_of: Make, thing: Make, fake_clock: FakeClock
) -> None:
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    source.put(thing("a", labels={"app": "web"}))
    fake_clock.settle()
    old = informer.lister.get("a", "ns")
    source.put(thing("a", labels={"app": "db"}))
    fake_clock.settle()
    spoil(old)
    informer.stop()
    assert informer.join()
    assert isinstance(informer.failure, CacheMutated), "looked once more at the stop"


@pytest.mark.rule("ST-15", "LS-04")
@pytest.mark.usefixtures("asked_for")
def test_private_copies_may_be_changed_and_the_server_may_change_anything(
    source: FakeSource[Any], informer_of: Make, thing: Make, fake_clock: FakeClock
) -> None:
    source.put(thing("a", labels={"app": "web"}))
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    spoil(informer.lister.with_copies().get("a", "ns"))
    source.put(thing("a", labels={"app": "db"}))
    source.delete("ns/a")
    fake_clock.advance(2)
    informer.stop()
    assert informer.join()
    assert informer.failure is None


@pytest.mark.rule("ST-15")
@pytest.mark.parametrize("value", [None, ""])
def test_it_is_off_unless_asked_for(
    source: FakeSource[Any],
    informer_of: Make,
    thing: Make,
    fake_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    if value is None:
        monkeypatch.delenv(MUTATION_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(MUTATION_VARIABLE, value)
    source.put(thing("a", labels={"app": "web"}))
    informer = informer_of(source)
    informer.start()
    fake_clock.settle()
    spoil(informer.lister.get("a", "ns"))
    fake_clock.advance(2)
    assert informer.failure is None


@pytest.mark.rule("ST-15")
def test_an_object_is_watched_over_for_two_to_four_minutes(
    thing: Make, fake_clock: FakeClock
) -> None:
    detector = MutationDetector[Any]("things", clock=fake_clock)
    early, late = thing("early", labels={}), thing("late", labels={})
    detector.keep([early])
    fake_clock.advance(120)
    detector.check()
    detector.keep([late])
    spoil(early)
    with pytest.raises(CacheMutated, match="ns/early"):
        detector.check()
    fake_clock.advance(120)
    with pytest.raises(CacheMutated, match="ns/early"):
        detector.check()
    detector.check()
    spoil(late)
    with pytest.raises(CacheMutated, match="ns/late"):
        detector.check()


@pytest.mark.rule("ST-15")
@pytest.mark.parametrize(
    ("spoil_it", "where"),
    [
        (lambda obj: obj["spec"].update(size=2), ".spec.size"),
        (lambda obj: obj["spec"].update(more=2), ".spec.more"),
        (lambda obj: obj["spec"].pop("size"), ".spec.size"),
        (lambda obj: obj["list"][1].update(a=2), ".list[1].a"),
        (lambda obj: obj["list"].append(1), ".list"),
        (lambda obj: obj.update(spec=None), ".spec.size"),
    ],
)
def test_the_first_difference_is_named(spoil_it: Callable[[Any], object], where: str) -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"size": 1}, "list": [{}, {"a": 1}]}
    detector = MutationDetector[Any]("things")
    detector.keep([obj, copy.deepcopy(obj)])
    spoil_it(obj)
    with pytest.raises(CacheMutated) as caught:
        detector.check()
    assert caught.value.changed == (f"a{where}",)


def test_a_factory_passes_on_what_crashed_an_informer(
    source: FakeSource[Any],
    things: Resource[Any],
    thing: Make,
    fake_clock: FakeClock,
    asked_for: None,
) -> None:
    class Client:
        def resource(self, resource: Resource[Any]) -> FakeSource[Any]:
            return source

    failures: list[BaseException] = []
    source.put(thing("a", labels={}))
    factory = InformerFactory(
        Client(), FactoryOptions(on_failure=failures.append, freeze=False), clock=fake_clock
    )
    informer = factory.informer(things)
    factory.start()
    factory.wait_for_sync(None)
    spoil(informer.lister.get("a", "ns"))
    assert factory.shutdown()
    assert [type(failure) for failure in failures] == [CacheMutated]
