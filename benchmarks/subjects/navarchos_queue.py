"""Run keys through a work queue, as `peers/clientgo/workqueue` does.

python -m benchmarks.subjects.navarchos_queue work|priority cycles WORKERS KEYS
python -m benchmarks.subjects.navarchos_queue work|priority alone KEYS
python -m benchmarks.subjects.navarchos_queue work|priority delayed KEYS
"""

import sys
import threading
import time

from benchmarks.subjects.reporting import Reporter
from navarchos.workqueue import DelayingQueue, PriorityQueue, WorkQueue


def keys(count: int) -> list[str]:
    """Return keys like the keys of informers."""
    return [f"ns-{number % 20}/key-{number:07d}" for number in range(count)]


def work(queue: WorkQueue[str] | PriorityQueue[str]) -> None:
    """Take and finish keys until the queue is drained."""
    while (loan := queue.get()) is not None:
        with loan:
            pass


def cycles(queue: WorkQueue[str] | PriorityQueue[str], workers: int, count: int) -> None:
    """Add keys on one thread, take and finish them on others."""
    reporter, everything = Reporter(), keys(count)
    reporter.begin()
    threads = [threading.Thread(target=work, args=(queue,)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for key in everything:
        queue.add(key)
    queue.shut_down()
    for thread in threads:
        thread.join()
    reporter.end("cycled")


def alone(queue: WorkQueue[str] | PriorityQueue[str], count: int) -> None:
    """Add, take and finish keys on one thread."""
    reporter, everything = Reporter(), keys(count)
    reporter.begin()
    for key in everything:
        queue.add(key)
        loan = queue.get()
        assert loan is not None
        with loan:
            pass
    reporter.end("cycled")
    queue.shut_down()


def delayed(queue: DelayingQueue[str] | PriorityQueue[str], count: int) -> None:
    """Measure delayed keys: the cost of adding them, of their memory, and of waiting."""
    reporter, everything = Reporter(), keys(count)
    reporter.begin()
    reporter.end("began")
    reporter.begin()
    for number, key in enumerate(everything):
        queue.add_after(key, 3_600 + number / 1_000)
    reporter.end("added")
    reporter.collect_garbage()
    reporter.begin()
    time.sleep(3.0)
    reporter.end("waited")
    queue.shut_down()


def main() -> None:
    """Report the stages `cycled`; or `began`, `added`, `after_gc` and `waited`."""
    kind, what, *numbers = sys.argv[1:]
    if what == "delayed":
        delayed(PriorityQueue() if kind == "priority" else DelayingQueue(), *map(int, numbers))
        return
    queue: WorkQueue[str] | PriorityQueue[str]
    queue = PriorityQueue() if kind == "priority" else WorkQueue()
    if what == "alone":
        alone(queue, *map(int, numbers))
    else:
        cycles(queue, *map(int, numbers))


if __name__ == "__main__":
    main()
