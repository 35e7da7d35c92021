"""What a node's stream of telemetry holds."""

import json

from headrace.client import FetchClient
from headrace.native import decode_records

STREAM = "gpu-telemetry"


def messages(node):
    """Topic and payload of each message."""
    found = []
    with FetchClient(node.servers) as client:
        for partition, end in client.latest_offsets(STREAM).items():
            at = 0
            while at < end:
                columns = decode_records(
                    client.fetch(STREAM, partition, at, 1 << 20, 0), at, end, 100_000
                )
                for _, _, _, value, headers in columns.rows():
                    named = {name: text.decode() for name, text in headers}
                    found.append((named["mqtt.topic"], json.loads(value)))
                at = columns.next_offset
    return found
