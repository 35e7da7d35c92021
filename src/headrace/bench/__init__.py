"""Measures a broker from outside, by what arrives: `headrace bench`.

The load itself is `headrace-bench`, in Rust. Must not know whose server it measures.
"""

from headrace.bench.mqtt import FAULTS, Load, Outcome, Server, medians, run
from headrace.bench.process import Usage

__all__ = ["FAULTS", "Load", "Outcome", "Server", "Usage", "medians", "run"]
"""What `headrace.cli.bench` and `benchmarks/` share."""
