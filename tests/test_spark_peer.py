"""Spark's own Kafka source reads a stream to the rows that ours reads."""

import json
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from conftest import RunningNode, environment
from kafkajars import jars

pytestmark = [pytest.mark.clients, pytest.mark.spark, pytest.mark.soak]

JARS = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
]
"""The newest that Maven Central has, for Spark 4.2, and what that was made with."""

STAMP = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3

RECORDS = [
    {"key": b"k", "value": b"v", "headers": [("h", b"1"), ("h", b"2")]},
    {"key": None, "value": b"no key"},
    {"key": b"no value", "value": None},
    {"key": b"", "value": b"", "headers": [("", b""), ("null", None)]},
    {"key": "ключ".encode(), "value": bytes(range(256)), "headers": [("имя", b"\x00\xff")]},
]


def fill(node, stream):
    """Some of each kind in each codec, over all partitions; a second between two records."""
    made = 0
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": node.servers, "compression.type": codec, "linger.ms": 100}
        )
        for _ in range(PARTITIONS):
            for record in RECORDS:
                producer.produce(
                    stream, partition=made % PARTITIONS, timestamp=STAMP + made * 1000, **record
                )
                made += 1
        assert producer.flush(60) == 0
    return made


def offsets(*numbers):
    return {str(partition): number for partition, number in enumerate(numbers)}


READS = [
    ("everything", {}, {}, False),
    (
        "between offsets",
        {
            "startingOffsets": {"one": offsets(3, -2, 20)},
            "endingOffsets": {"one": offsets(20, 7, -1)},
        },
        {},
        False,
    ),
    (
        "between times",
        {"startingTimestamp": STAMP + 10_500, "endingTimestamp": STAMP + 50_000},
        {},
        False,
    ),
    ("as it is now", {"startingOffsets": "earliest"}, {}, True),
    ("bit by bit", {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}, {}, True),
    ("from offsets on", {"startingOffsets": {"one": offsets(5, 0, -2)}}, {}, True),
    ("from a time on", {"startingTimestamp": STAMP + 30_000}, {}, True),
    ("two streams", {"startingOffsets": "earliest"}, {"streams": "one,two"}, False),
    ("a pattern", {"startingOffsets": "earliest"}, {"streamPattern": "one|two"}, True),
]
"""Name, options that both sources have, what is read, and whether as a stream."""

NAMES = {"stream": "subscribe", "streams": "subscribe", "streamPattern": "subscribePattern"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """By the name of the read: that of Spark's source, and ours."""
    folder = tmp_path_factory.mktemp("peer")
    found = jars(folder, *JARS, alone=True)  # what they need further is in Spark itself
    node = RunningNode(folder / "data")
    try:
        for stream in ("one", "two"):
            node.create_stream(stream, partitions=PARTITIONS)
            assert fill(node, stream) == 75
        questions = []
        for _, more, read, streaming in READS:
            what = read or {"stream": "one"}
            given = {k: json.dumps(v) if isinstance(v, dict) else str(v) for k, v in more.items()}
            theirs = {NAMES[name]: value for name, value in what.items()}
            theirs |= {"kafka.bootstrap.servers": node.servers, "includeHeaders": "true"}
            for source, own in (("kafka", theirs), ("headrace", {"servers": node.servers, **what})):
                question = {"format": source, "options": given | own, "streaming": streaming}
                questions.append(question)
        asked, told = folder / "questions.json", folder / "answers.json"
        asked.write_text(json.dumps(questions))
        program = Path(__file__).with_name("sparkpeer.py")
        subprocess.run(
            [sys.executable, str(program), str(found), str(asked), str(told)],
            check=True, env=environment(), timeout=280,
        )  # fmt: skip
        read = json.loads(told.read_text())
    finally:
        node.close()
    pairs = zip(read[::2], read[1::2], strict=True)
    return dict(zip([name for name, *_ in READS], pairs, strict=True))


@pytest.mark.parametrize("name", [name for name, *_ in READS])
def test_both_sources_read_the_same(answers, name):
    theirs, ours = answers[name]
    columns = [field for field in theirs["schema"] if field["name"] != "timestampType"]
    assert ours["schema"] == columns
    assert len(theirs["rows"]) > 20
    assert ours["rows"] == theirs["rows"]
