"""Kafka's own tools and parsers read our segments and indexes."""

import re
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from headrace.native import Store, build_batch
from kafkajars import Tools
from storelog import SMALL, Appender, files, produced

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PYTHON_CODECS = ["none", "gzip"]
"""Those that kafka-python reads without further libraries."""
BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) .* position: (\d+) ", re.MULTILINE)
RECORD = re.compile(r"^\| offset: (\d+) ", re.MULTILINE)


def written(folder, codecs):
    """Several segments of plain, compressed and idempotent batches; the offset after them."""
    with_index = {**SMALL, "segment_bytes": 40_000, "index_interval_bytes": 1000}
    store = Store.open(str(folder), **with_index)
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    sequence = 0
    for number in range(600):
        if number % 3:
            records = [(b"key", b"value" * 40, [("h", b"1")], 1000 + number)]
            appender.append(log, build_batch(records, codecs[number % len(codecs)]))
        else:
            appender.append(log, produced(7, 0, sequence, b"one" * 40, b"two"))
            sequence += 2
    end = store.bounds(log)[1]
    store.close()
    assert len(files(folder, "*.log")) > 2
    return end


def test_the_record_parser_of_kafka_python_reads_segments(tmp_path):
    end = written(tmp_path, PYTHON_CODECS)
    offsets = []
    for path in files(tmp_path, "*.log"):
        records = MemoryRecords(path.read_bytes())
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            offsets += [record.offset for record in batch]
    assert offsets == list(range(end))


def batches_of(path):
    """Last offset and position of each batch, greatest timestamp of each, from the bytes."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        base = int.from_bytes(data[at : at + 8], "big")
        last = base + int.from_bytes(data[at + 23 : at + 27], "big")
        yield last, at, int.from_bytes(data[at + 35 : at + 43], "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")


def entries(path, *widths):
    data, at = path.read_bytes(), 0
    while at < len(data):
        entry = []
        for width in widths:
            entry.append(int.from_bytes(data[at : at + width], "big"))
            at += width
        yield tuple(entry)


def test_index_entries_are_kafkas(tmp_path):
    written(tmp_path, CODECS)
    for path in files(tmp_path, "*.index"):
        base = int(path.stem)
        batches = list(batches_of(path.with_suffix(".log")))
        positions = {last - base: position for last, position, _ in batches}
        found = list(entries(path, 4, 4))
        assert len(found) > 5
        assert all(positions[relative] == position for relative, position in found)
    for path in files(tmp_path, "*.timeindex"):
        base = int(path.stem)
        batches = list(batches_of(path.with_suffix(".log")))
        for newest, relative in entries(path, 8, 4):
            before = [time for last, _, time in batches if last - base <= relative]
            assert max(before) == newest
        assert newest == max(time for *_, time in batches)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    return Tools(tmp_path_factory.mktemp("kafka"), "3.9.1")


def dump(tools: Tools, *paths: Path) -> str:
    names = ",".join(map(str, paths))
    return tools.run("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names)


@pytest.mark.soak
def test_kafka_dump_log_reads_segments_and_indexes(tmp_path, tools):
    end = written(tmp_path, CODECS)
    segments = files(tmp_path, "*.log")
    text = dump(tools, *segments)
    assert [int(offset) for offset in RECORD.findall(text)] == list(range(end))
    assert len(BATCH.findall(text)) == 600
    assert "Found" not in text, "it finds invalid bytes or mismatches so"
    for path in [*files(tmp_path, "*.index"), *files(tmp_path, "*.timeindex")]:
        text = dump(tools, path)
        assert "Dumping" in text
        assert "ismatch" not in text
        assert "Found" not in text
        assert text.count("offset: ") > 5
