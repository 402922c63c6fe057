"""The metrics of waves. What admission decides has gauges in `replacements/metrics.py`."""

import threading
from collections import Counter

from navarchos.instrument import Instruments
from navarchos.operator.api.v1alpha1 import NodeRollout, RolloutPhase, WaveState, WaveStatus

__all__ = ["RolloutMetrics"]


class RolloutMetrics:
    """Publishes which waves unfinished rollouts are in, and which ones wait for a user (NP-43).

    A wave changes with a status, so these gauges cost no wake-up. The name of a rollout is never a
    label; there are at most 20 waves.

    Threads: safe from any thread.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._waves = instruments.gauge(
            "navarchos_rollout_waves",
            "Unfinished NodeRollouts with waves, by number and state of the current wave.",
            ["wave", "state"],
        )
        self._awaiting = instruments.gauge(
            "navarchos_wave_awaiting_approval_since_timestamp_seconds",
            "Unix time since which the wave that waits longest for an approval waits; 0 if none.",
        )
        self._by_rollout_lock = threading.Lock()
        self._by_rollout: dict[str, WaveStatus] = {}  # guarded by _by_rollout_lock; by name

    def observe(self, rollout: NodeRollout) -> None:
        """Record the current wave of a rollout."""
        is_over = rollout.status.phase is RolloutPhase.COMPLETED
        self._replace(rollout.metadata.name, None if is_over else rollout.status.wave)

    def forget(self, name: str) -> None:
        """Forget a rollout that is being deleted."""
        self._replace(name, None)

    def _replace(self, name: str, wave: WaveStatus | None) -> None:
        with self._by_rollout_lock:
            if self._by_rollout.get(name) == wave:
                return
            self._by_rollout.pop(name, None)
            if wave is not None:
                self._by_rollout[name] = wave
            self._publish_locked()

    def _publish_locked(self) -> None:
        waves = self._by_rollout.values()
        counts = Counter((str(wave.number), wave.state) for wave in waves)
        # The last value of a wave that no rollout is in any more must disappear.
        self._waves.clear()
        for (number, state), count in counts.items():
            self._waves.labels(number, state).set(count)
        since = [
            wave.since.timestamp()
            for wave in waves
            if wave.state is WaveState.AWAITING_APPROVAL and wave.since is not None
        ]
        self._awaiting.set(min(since, default=0.0))
