"""The root of every error this library raises.

Each layer draws its own branch below these roots, next to the code that raises
it. Facts are attributes; text is for people and is never parsed back.

```text
NavarchosError(Exception)
  ConfigError(ValueError)            a bad setting: name, value, rule
  LifecycleError(RuntimeError)
    AlreadyStarted  NotStarted  AlreadyStopped  SelfJoin  Forked
  ThreadCrashed                      a thread of a group died: name, cause chained
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
    """Anything this library raises on purpose."""


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
    """A call that the object's present state does not allow.

    Attributes:
        what: The object that refused, in words.
    """

    _why = "cannot do this now"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} {self._why}"


class AlreadyStarted(LifecycleError):
    """Started a second time, or changed after its start."""

    _why = "has already been started"


class NotStarted(LifecycleError):
    """Used before its start."""

    _why = "has not been started"


class AlreadyStopped(LifecycleError):
    """Used after its stop."""

    _why = "has already been stopped"


class SelfJoin(LifecycleError):
    """Asked by one of its own threads to wait for that thread (RT-09)."""

    _why = "cannot wait for the thread that asks; call this from another thread"


class Forked(LifecycleError):
    """Used in a forked child of the process that started it (RT-31).

    Threads do not survive a fork. Start things after it: with a pre-fork server, in
    its hook for new workers; with `multiprocessing`, use the start method `spawn`.
    """

    _why = "was started before this process was forked; make and start another one here"


class ThreadCrashed(NavarchosError):
    """A thread of a group ended with an exception, chained as the cause.

    Attributes:
        thread: The thread's name.
    """

    def __init__(self, thread: str) -> None:
        super().__init__(thread)
        self.thread = thread

    def __str__(self) -> str:
        return f"thread {self.thread} crashed"


class Stopped(BaseException):
    """Cooperative cancellation: the stop token in charge has been set.

    A `BaseException`, so that `except Exception` in user code lets it pass.

    Attributes:
        reason: Why the token was set, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"stopped: {self.reason}"
