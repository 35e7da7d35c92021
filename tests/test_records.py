"""Record batches against foreign writers and readers, pyarrow, and hypothesis."""

import struct

import pyarrow as pa
import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2
from kafka.record import default_records as kafka_records
from kafka.record.util import calc_crc32c

from headrace import native
from headrace.errors import (
    CorruptRecordError,
    HeadraceError,
    InvalidRecordError,
    RecordsTooLargeError,
    UnsupportedRecordError,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EVERY_KIND = [
    (b"key", b"value", [("mqtt.topic", b"dcgm/node-1/GPU-1"), ("empty", b"")], 1_700_000_000_000),
    (None, b"", [], 1_700_000_000_001),
    (b"", None, [("null", None), ("ümläut", b"\x00\xff")], 1_699_999_999_000),
    (b"k" * 70, b"v" * 9_000, [("h", b"x")] * 70, 1_700_000_100_000),
]
FOREIGN = [
    *(pytest.param(aiokafka_records, codec, id=f"aiokafka-{codec}") for codec in CODECS),
    # kafka-python needs a package for each other codec.
    *(pytest.param(kafka_records, codec, id=f"kafka-python-{codec}") for codec in CODECS[:2]),
]

field = st.none() | st.binary(max_size=300)
header = st.tuples(st.text(max_size=20), field)
record = st.tuples(field, field, st.lists(header, max_size=5), st.integers(0, 2**52))
records_lists = st.lists(record, min_size=1, max_size=40)


def foreign_batch(module, codec, records):
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, (key, value, headers, timestamp) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def foreign_records(module, batch):
    reader = module.DefaultRecordBatch(bytearray(batch))
    assert reader.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader]


def rows(records):
    return [(n, t, k, v, h) for n, (k, v, h, t) in enumerate(records)]


def arrow_table(columns):
    """The columns as a Kafka consumer's table, by `from_buffers` alone."""

    def array(kind, rows, buffers, children=None):
        buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
        result = pa.Array.from_buffers(kind, rows, buffers, children=children)
        result.validate(full=True)
        return result

    rows = columns.records
    flat = len(columns.header_keys[1]) // 4 - 1
    entries = pa.StructArray.from_arrays(
        [
            array(pa.string(), flat, columns.header_keys),
            array(pa.binary(), flat, columns.header_values),
        ],
        names=["key", "value"],
    )
    return pa.table(
        {
            "offset": array(pa.int64(), rows, [None, columns.offsets]),
            "timestamp": array(pa.timestamp("us"), rows, [None, columns.timestamps_us]),
            "key": array(pa.binary(), rows, columns.keys),
            "value": array(pa.binary(), rows, columns.values),
            "headers": array(pa.list_(entries.type), rows, [None, columns.header_lists], [entries]),
        }
    )


def expected_table(records, base=0):
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table(
        {
            "offset": pa.array(range(base, base + len(records)), pa.int64()),
            "timestamp": pa.array([r[3] * 1000 for r in records], pa.timestamp("us")),
            "key": pa.array([r[0] for r in records], pa.binary()),
            "value": pa.array([r[1] for r in records], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in r[2]] for r in records],
                pa.list_(entry),
            ),
        }
    )


def decode(data, start=0, end=2**62, max_records=10**6):
    return arrow_table(native.decode_records(data, start, end, max_records))


def at_offset(batch, base):
    return struct.pack(">q", base) + batch[8:]


def signed(batch, position=21, new=b""):
    """The batch with `new` at `position`, its length and CRC made right, as a liar would."""
    batch = bytearray(batch)
    batch[position : position + len(new)] = new
    struct.pack_into(">I", batch, 17, calc_crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize(("module", "codec"), FOREIGN)
class TestForeign:
    def test_their_batches_decode_here(self, module, codec):
        batch = foreign_batch(module, codec, EVERY_KIND)
        summary = native.validate_batches(batch)
        assert (summary.batches, summary.records) == (1, len(EVERY_KIND))
        assert summary.max_timestamp == 1_700_000_100_000
        assert decode(batch) == expected_table(EVERY_KIND)

    def test_our_batches_decode_there(self, module, codec):
        batch = native.build_batch(EVERY_KIND, codec)
        assert foreign_records(module, batch) == rows(EVERY_KIND)

    @pytest.mark.parametrize("sent", CODECS)
    def test_recoded_batches_decode_there(self, module, codec, sent):
        batch = native.recode_batches(native.build_batch(EVERY_KIND, sent), codec)
        assert batch[22] & 7 == CODECS.index(codec)
        assert foreign_records(module, batch) == rows(EVERY_KIND)
        back = native.recode_batches(foreign_batch(module, codec, EVERY_KIND), sent)
        assert decode(back) == expected_table(EVERY_KIND)

    @settings(max_examples=50, deadline=None)
    @given(records=records_lists)
    def test_anything_comes_back(self, module, codec, records):
        theirs = foreign_batch(module, codec, records)
        ours = native.build_batch(records, codec)
        assert decode(theirs) == decode(ours) == expected_table(records)
        assert foreign_records(module, ours) == foreign_records(module, theirs) == rows(records)
        assert native.decode_records(ours, 0, 100, 100).rows() == rows(records)


@pytest.mark.parametrize("module", [aiokafka_records, kafka_records])
@given(records=records_lists)
@settings(deadline=None)
def test_an_uncompressed_batch_is_the_same_bytes_whoever_builds_it(module, records):
    ours, theirs = native.build_batch(records), foreign_batch(module, "none", records)
    # The leader epoch is the broker's to set; producers disagree on what stands there before.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


@given(key=st.binary(max_size=64))
def test_murmur2_is_that_of_kafka(key):
    assert native.murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF


@settings(deadline=None)
@given(
    batches=st.lists(st.tuples(records_lists, st.sampled_from(CODECS)), max_size=5),
    start=st.integers(0, 100),
    length=st.integers(0, 100),
    max_records=st.integers(1, 100),
    cut=st.integers(0, 100),
)
def test_reading_on_from_next_offset_meets_each_record_once(
    batches, start, length, max_records, cut
):
    log, records = [], []
    for batch, codec in batches:
        data = at_offset(native.build_batch(batch, codec), len(records))
        records += batch
        log.append((len(records), data))

    def fetch(position):
        """From the batch that holds the offset, into the middle of a later one."""
        rest = [data for batch_end, data in log if batch_end > position]
        return b"".join(rest)[: len(rest[0]) + cut]

    end = min(start + length, len(records))
    read, position = [], start
    while position < end:
        columns = native.decode_records(fetch(position), position, end, max_records)
        assert position < columns.next_offset
        read.append(arrow_table(columns))
        position = columns.next_offset
    expected = expected_table(records[start:end], start)
    assert pa.concat_tables([expected[:0], *read]) == expected


def test_columns_are_read_in_place_and_outlive_their_owner():
    columns = native.decode_records(native.build_batch(EVERY_KIND), 0, 9, 9)
    _, bounds, data = columns.values
    view = memoryview(data)
    assert view.readonly
    assert pa.py_buffer(data).address == pa.py_buffer(columns.values[2]).address
    assert len(bounds) == 4 * (len(EVERY_KIND) + 1)
    del columns, data
    assert bytes(view) == b"value" + b"v" * 9_000


def test_no_data_holds_no_record():
    summary = native.validate_batches(b"")
    assert (summary.batches, summary.records, summary.max_timestamp) == (0, 0, -1)
    assert decode(b"") == expected_table([])
    assert native.decode_records(b"", 7, 9, 1).next_offset == 7


def test_a_batch_of_a_transaction_and_a_control_batch_are_told():
    batch = native.build_batch(EVERY_KIND)
    assert native.validate_batches(signed(batch, 22, b"\x10")).transactional
    control = signed(batch, 22, b"\x30")
    assert native.validate_batches(control).control
    columns = native.decode_records(control, 0, 10, 10)
    assert (columns.records, columns.next_offset) == (0, 4)


def test_an_unknown_codec_and_an_empty_batch_are_refused():
    with pytest.raises(ValueError, match='none, gzip, snappy, lz4, zstd; got "brotli"'):
        native.build_batch(EVERY_KIND, "brotli")
    with pytest.raises(ValueError, match="at least one record"):
        native.build_batch([])


GOOD = native.build_batch(EVERY_KIND)
GZIP = native.build_batch(EVERY_KIND, "gzip")

# Each variant of the Rust enum `record::Fault`, the class that stands for it, and its message.
FAULTS = {
    "Truncated": (GOOD[:-1], CorruptRecordError, f"needs {len(GOOD)} bytes, {len(GOOD) - 1} are"),
    "Length": (signed(GOOD, 8, b"\0\0\0\x30"), CorruptRecordError, "length 48 is shorter"),
    "Magic": (signed(GOOD, 16, b"\1"), UnsupportedRecordError, "magic 1 is not supported"),
    "Crc": (GOOD[:-1] + b"\x55", CorruptRecordError, "CRC-32C is [0-9a-f]{8}, the header says"),
    "Attributes": (signed(GOOD, 21, b"\1\0"), InvalidRecordError, "0x0100 hold undefined bits"),
    "Codec": (signed(GOOD, 22, b"\7"), UnsupportedRecordError, "codec 7 is unknown"),
    "Count": (signed(GOOD, 57, b"\0\0\0\5"), InvalidRecordError, "record count 5 does not fit"),
    "Producer": (
        signed(GOOD, 43, b"\0\0\0\0\0\0\0\5\0\0\xff\xff\xff\xff"),
        InvalidRecordError,
        "producer 5 sent epoch 0 and sequence -1: neither is negative",
    ),
    "Record": (signed(GOOD, 61, b"\x7f"), InvalidRecordError, "record 0: length is malformed"),
    "Compression": (signed(GZIP, 61, b"xx"), InvalidRecordError, "its gzip data is malformed"),
    "TooLarge": (
        native.build_batch([(None, bytes(128 << 20), [], 0)], "zstd"),
        RecordsTooLargeError,
        "its zstd data decompresses to more than 134217728 bytes",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_a_class_with_one_line(fault):
    bad, expected, message = FAULTS[fault]
    data = GOOD + at_offset(bad, 4)
    with pytest.raises(HeadraceError, match=message) as raised:
        native.validate_batches(data)
    assert type(raised.value) is expected
    text = str(raised.value)
    assert text.startswith(f"record batch at byte {len(GOOD)} (base offset 4): ")
    assert "\n" not in text


def test_compressed_records_can_pass_unseen():
    bad = FAULTS["Compression"][0]
    assert native.validate_batches(bad, open_compressed=False).records == 4
    with pytest.raises(CorruptRecordError):
        native.decode_records(bad, 0, 9, 9)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("claimed", [0, 1 << 60, -1])
def test_a_header_with_another_timestamp_than_its_records_is_found_and_put_right(codec, claimed):
    good = native.build_batch(EVERY_KIND, codec)
    assert not native.validate_batches(good).misdated
    misdated = signed(good, 35, claimed.to_bytes(8, "big", signed=True))
    assert native.validate_batches(misdated).misdated
    assert native.recode_batches(misdated, codec) == good
    other = native.recode_batches(misdated, "zstd")
    assert not native.validate_batches(other).misdated
