"""The base classes of all errors of this library.

Each layer defines its subclasses beside the code that raises them. Facts are attributes;
no code parses the text of an error.

```text
NavarchosError(Exception)
  ConfigError(ValueError)            a bad setting: name, value, rule
  LifecycleError(RuntimeError)
    AlreadyStarted  NotStarted  AlreadyStopped  SelfJoin  Forked
  ThreadCrashed                      a thread of a group failed; the cause is chained
  ClientError                        navarchos.client.errors
  WatchError                         navarchos.client.errors
  CacheError                         navarchos.informers.errors
  QueueTimeout                       navarchos.workqueue
  LeaseLost                          navarchos.leaderelection
  TerminalError                      navarchos.runtime
  DrainError                         navarchos.drain
Stopped(BaseException)               cooperative cancellation, with its reason
```
"""

__all__ = [
    "AlreadyStarted",
    "AlreadyStopped",
    "ConfigError",
    "Forked",
    "LifecycleError",
    "NavarchosError",
    "NotStarted",
    "SelfJoin",
    "Stopped",
    "ThreadCrashed",
]


class NavarchosError(Exception):
    """The base class of all errors that this library raises, except `Stopped`."""


class ConfigError(NavarchosError, ValueError):
    """A setting or an argument is invalid.

    The text is `name=value: rule`.

    Attributes:
        name: The setting's name, as the user wrote it.
        value: The value that was refused.
        rule: The rule that the value breaks, as a full sentence without a period.
    """

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(name, value, rule)
        self.name = name
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}: {self.rule}"


class LifecycleError(NavarchosError, RuntimeError):
    """The state of the object does not allow the call.

    Attributes:
        what: The object, in words.
    """

    _why = "does not allow this call now"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} {self._why}"


class AlreadyStarted(LifecycleError):
    """The object was started a second time, or changed after its start."""

    _why = "has already been started"


class NotStarted(LifecycleError):
    """The object was used before its start."""

    _why = "has not been started"


class AlreadyStopped(LifecycleError):
    """The object was used after its stop."""

    _why = "has already been stopped"


class SelfJoin(LifecycleError):
    """A thread would wait for itself (RT-09)."""

    _why = "cannot wait for the calling thread; call this from another thread"


class Forked(LifecycleError):
    """The object was started by the parent of this forked process (RT-31).

    Threads do not exist in a forked process. Start objects after the fork: with a pre-fork
    server, in its hook for new workers; with `multiprocessing`, use the start method
    `spawn`.
    """

    _why = "was started before this process was forked; create and start another one here"


class ThreadCrashed(NavarchosError):
    """A thread of a group ended with an exception, which is the `__cause__`.

    Attributes:
        thread: The thread's name.
    """

    def __init__(self, thread: str) -> None:
        super().__init__(thread)
        self.thread = thread

    def __str__(self) -> str:
        return f"thread {self.thread} crashed"


class Stopped(BaseException):
    """Cooperative cancellation: the stop token of the operation is set.

    A `BaseException`, so that `except Exception` in user code does not catch it.

    Attributes:
        reason: The reason of the stop token.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"stopped: {self.reason}"
