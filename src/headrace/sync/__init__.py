"""The clients of `headrace` for programs without asyncio: the same names, blocking.

`headrace.Producer`, `Consumer` and `Admin` say what each method means, and what it raises.
"""

from headrace.sync.kafka import Admin, Consumer, Producer

__all__ = ["Admin", "Consumer", "Producer"]
