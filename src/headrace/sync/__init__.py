"""The clients of `headrace` for programs without asyncio: the same names, blocking.

`headrace.Producer`, `Consumer`, `Admin` and `Queue` say what each method means, and what it raises.
"""

from headrace.sync.kafka import Admin, Consumer, Producer
from headrace.sync.queues import Queue

__all__ = ["Admin", "Consumer", "Producer", "Queue"]
