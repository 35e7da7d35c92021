"""Measures a broker from outside, by what arrives: `headrace bench`.

The load itself, and the judge of what arrives, is `headrace-bench`, in Rust; over Kafka's protocol
the clients are librdkafka and our own. `spark` measures what reads a broker. `suite` starts
brokers and alternates them; but for its `peers`, nothing knows whose server it measures.
"""

from headrace.bench.mqtt import FAULTS, Load, Outcome, medians, run
from headrace.bench.process import Usage
from headrace.bench.server import Server

__all__ = ["FAULTS", "Load", "Outcome", "Server", "Usage", "medians", "run"]
"""What `headrace.cli.bench` and `benchmarks/` share."""
