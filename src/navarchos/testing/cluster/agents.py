"""Who writes: the user agents of the simulator's components."""

from enum import StrEnum
from typing import Final

__all__ = ["PREFIX", "Agent", "is_simulator"]

PREFIX: Final = "navarchos-simulator/"
"""The user agent of every request of the simulator begins like this."""


class Agent(StrEnum):
    """A component, as its requests name it.

    `CONTROLLERS` are those of workloads, budgets and node taints, and the collector of
    pods whose node is gone.
    """

    CONTROLLERS = PREFIX + "controller-manager"
    SCHEDULER = PREFIX + "scheduler"
    KUBELET = PREFIX + "kubelet"
    CLOUD = PREFIX + "cloud"


def is_simulator(user_agent: str) -> bool:
    """Tell whether a request came from the simulator itself."""
    return user_agent.startswith(PREFIX)
