"""Loads on Kafka brokers: what is produced, read, how late, and what connections and metadata cost.

Clients run in processes of their own (`work`): producers (`senders`) and readers (`readers`). Each
payload says who sent it and the how-manieth it is, so that what was read is held against what was
acknowledged (`native.RecordJudge`). Must not know whose broker it measures.
"""

from headrace.bench.kafka.clients import CLIENTS, INSTALL, installed
from headrace.bench.kafka.load import Load
from headrace.bench.kafka.run import FAULTS, MEASURES, Outcome, medians, run

__all__ = [
    "CLIENTS", "FAULTS", "INSTALL", "MEASURES", "Load", "Outcome", "installed", "medians", "run",
]  # fmt: skip
