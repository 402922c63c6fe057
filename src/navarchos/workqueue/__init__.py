"""Work queues: each holds keys that must be processed, and gives each to one worker at a time.

`WorkQueue` merges repeated adds and keeps an order, `DelayingQueue` also adds keys later,
and `RateLimitingQueue` delays a key the longer, the more often it failed. `PriorityQueue`
does all of that by priority, and is the queue of controllers. Nothing here depends on
Kubernetes: a key is any hashable value.
"""

from navarchos.workqueue.base import Loan, QueueTimeout
from navarchos.workqueue.limiters import (
    ItemExponential,
    ItemFastSlow,
    MaxOf,
    RateLimiter,
    TokenBucketLimiter,
    WithMaxWait,
    controller_limiter,
    default_limiter,
)
from navarchos.workqueue.priority import PriorityQueue
from navarchos.workqueue.queue import DelayingQueue, Fifo, Order, RateLimitingQueue, WorkQueue

__all__ = [
    "DelayingQueue",
    "Fifo",
    "ItemExponential",
    "ItemFastSlow",
    "Loan",
    "MaxOf",
    "Order",
    "PriorityQueue",
    "QueueTimeout",
    "RateLimiter",
    "RateLimitingQueue",
    "TokenBucketLimiter",
    "WithMaxWait",
    "WorkQueue",
    "controller_limiter",
    "default_limiter",
]
