"""With any faults of server and network, cache and handlers end up with the right state."""

from typing import Any

from hypothesis import given, settings
from tests.properties.trial import Trial, beginnings, losses, manners, resyncs, sequences
from tests.seeds import runs


@given(
    beginning=beginnings,
    steps=sequences(),
    manner=manners,
    resync_period=resyncs,
)
@settings(max_examples=runs(500))
def test_the_cache_ends_up_with_the_servers_list_by_itself(
    beginning: list[Any], steps: list[Any], manner: dict[str, Any], resync_period: float
) -> None:
    """Any sequence of events, cut watches and lists, gaps, compactions, refusals and relists.

    No list is forced at the end, so the informer must notice missed changes itself.
    """
    trial = Trial(resync_period=resync_period, **manner)
    with trial.running(beginning):
        trial.run(steps)
        trial.check()
        trial.check_bookmark()


@given(
    beginning=beginnings,
    steps=sequences(losses),
    manner=manners,
    resync_period=resyncs,
)
@settings(max_examples=runs(500))
def test_one_list_repairs_changes_that_the_server_never_sent(
    beginning: list[Any], steps: list[Any], manner: dict[str, Any], resync_period: float
) -> None:
    """A faulty watch cache, or a restored etcd: events are lost without any sign."""
    trial = Trial(resync_period=resync_period, **manner)
    with trial.running(beginning):
        trial.run(steps)
        trial.relist()
        trial.clock.settle()
        trial.check()
