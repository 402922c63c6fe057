"""Kubernetes events: short notes about objects, for `kubectl describe`.

```python
recorder = EventRecorder(client, component="widget-controller")
recorder.start(stop)
recorder.record(WIDGETS, widget, EventType.NORMAL, "Resized", "now 3 wide")
recorder.close(timeout=5.0)
```

Events inform users. No code may depend on them, and recording an event never blocks and never
raises. Events are written to `events.k8s.io/v1`, which the server also shows under `v1`. Repeats
become a series of one event.

Upstream: client-go `tools/events`; the spam filter is from `tools/record`.
"""

from navarchos.events.model import EVENTS, EventType, Reference
from navarchos.events.recorder import RBAC, EventRecorder, Recorder

__all__ = ["EVENTS", "RBAC", "EventRecorder", "EventType", "Recorder", "Reference"]
