"""The client of durable queues, over MQTT 5.0."""

from headrace.client.queues.consumption import Consumption
from headrace.client.queues.messages import Message
from headrace.client.queues.queue import Queue
from headrace.client.queues.worker import Reject

__all__ = ["Consumption", "Message", "Queue", "Reject"]
