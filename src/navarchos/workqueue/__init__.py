"""Work queues: keys that owe a run, each lent to one worker at a time.

`WorkQueue` collapses and orders, `DelayingQueue` adds later,
`RateLimitingQueue` adds the later the more often a key failed; `PriorityQueue`
does all that by urgency and is what controllers use. Nothing here knows
Kubernetes: a key is any hashable value.
"""

from navarchos.workqueue.delaying import DelayingQueue
from navarchos.workqueue.errors import QueueTimeout
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
from navarchos.workqueue.loan import Lender, Loan
from navarchos.workqueue.order import Fifo, Order
from navarchos.workqueue.priority import PriorityQueue
from navarchos.workqueue.queue import WorkQueue
from navarchos.workqueue.rate_limiting import RateLimitingQueue

__all__ = [
    "DelayingQueue",
    "Fifo",
    "ItemExponential",
    "ItemFastSlow",
    "Lender",
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
