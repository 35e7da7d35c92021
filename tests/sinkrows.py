"""Rows for a sink, and what a stream holds of them."""

import pyarrow as pa

from headrace.client import FetchClient
from headrace.native import decode_records

STAMP_MS = 1_700_000_000_000


def rows(values, keys=None, **columns):
    """An Arrow batch as Spark hands it to a writer."""
    made = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        made["key"] = pa.array(keys, pa.binary())
    return pa.RecordBatch.from_pydict(made | columns)


def stored(node, stream):
    """`(partition, timestamp ms, key, value, headers)` of all records, by partition and offset."""
    found = []
    with FetchClient(node.servers) as client:
        starts, ends = client.earliest_offsets(stream), client.latest_offsets(stream)
        for partition, end in ends.items():
            at = starts[partition]
            while at < end:
                columns = decode_records(
                    client.fetch(stream, partition, at, 1 << 22, 1000), at, end, 1 << 20
                )
                found += [(partition, *row[1:]) for row in columns.rows()]
                at = columns.next_offset
    return found


def stored_values(node, stream):
    """Values of all records, sorted."""
    return sorted(value for *_, value, _ in stored(node, stream))
