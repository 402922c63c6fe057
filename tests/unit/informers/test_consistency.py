"""The alarm for streamed lists that are not what an ordinary list shows."""

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from navarchos.client import WatchEvent
from navarchos.errors import ThreadCrashed
from navarchos.informers import InconsistentList
from navarchos.informers.streaming_list import DETECT_VARIABLE
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource, FakeStream

Make = Callable[..., Any]


class ForgetfulSource(FakeSource[Any]):
    """Leaves an object out of streamed lists."""

    def _begin(self, stream: FakeStream[Any], version: str, *, streaming: bool) -> None:
        if not streaming:
            super()._begin(stream, version, streaming=streaming)
            return
        for key, obj in self._objects.items():
            if key != "ns/b":
                stream.send(WatchEvent("ADDED", obj, obj.metadata.resource_version))
        stream.send(WatchEvent("BOOKMARK", None, self.version, initial_events_end=True))


@pytest.fixture
def forgetful(things: Any, thing: Make, fake_clock: FakeClock) -> ForgetfulSource:
    source = ForgetfulSource(things, clock=fake_clock)
    for name in "abc":
        source.put(thing(name))
    return source


@pytest.mark.rule("RF-29")
def test_a_difference_ends_the_informer_and_names_the_objects(
    forgetful: ForgetfulSource, informer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DETECT_VARIABLE, "1")
    informer = informer_of(forgetful)
    with pytest.raises(ThreadCrashed) as crash:
        informer.run(StopToken())
    cause = crash.value.__cause__
    assert isinstance(cause, InconsistentList)
    assert (cause.keys, cause.version) == (("ns/b",), "13")
    assert not informer.has_synced()
    assert len(informer.store) == 0
    assert forgetful.open_streams() == []


@pytest.mark.rule("RF-29")
@pytest.mark.parametrize("value", [None, ""])
def test_lists_are_compared_only_if_the_environment_asks_for_it(
    forgetful: ForgetfulSource,
    informer_of: Make,
    fake_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    if value is None:
        monkeypatch.delenv(DETECT_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(DETECT_VARIABLE, value)
    informer_of(forgetful).start()
    fake_clock.settle()
    assert [request.verb for request in forgetful.requests] == ["watch"]


@pytest.mark.rule("RF-29")
def test_equal_lists_go_on_after_one_list_more(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DETECT_VARIABLE, "1")
    source.put(thing("a"))
    # Content may be trimmed, and objects that could not be read are no difference.
    source.put(thing("unreadable"))

    def trim(obj: Any) -> Any:
        if obj.metadata.name == "unreadable":
            raise ValueError("no")
        return type(obj)(metadata=obj.metadata)

    informer = informer_of(source, transform=trim)
    informer.start()
    fake_clock.settle()
    assert informer.has_synced()
    asked = [(r.verb, r.resource_version, r.limit) for r in source.requests]
    assert asked == [("watch", "", 0), ("list", "12", 0)]


@pytest.mark.rule("RF-29")
def test_a_version_that_is_gone_proves_nothing(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DETECT_VARIABLE, "1")
    source.put(thing("a"))
    source.before_list = lambda: source.put(thing("b"))  # so it is not the present one any more
    informer = informer_of(source)
    with structlog.testing.capture_logs() as logs:
        informer.start()
        fake_clock.settle()
    assert informer.has_synced()
    assert [log for log in logs if log["event"] == "streamed_list_not_checked"]
