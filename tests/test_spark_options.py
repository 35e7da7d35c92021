"""Options of `format("headrace")`: each is checked, none is taken in vain."""

import pytest

from headrace.spark.errors import OptionError
from headrace.spark.options import parse

NEEDED = {"servers": "127.0.0.1:9092", "stream": "s"}


def test_the_defaults_are_those_of_sparks_kafka_source():
    streaming, batch = parse(NEEDED, "streaming"), parse(NEEDED, "batch")
    assert (streaming.starting, streaming.ending) == ("latest", "latest")
    assert (batch.starting, batch.ending) == ("earliest", "latest")
    assert streaming.streams == ("s",)
    assert streaming.fail_on_data_loss
    assert streaming.max_tasks is streaming.max_offsets is streaming.group is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("server", "servers"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_a_known_one(name, near):
    with pytest.raises(OptionError, match=f"no option '{name}'; did you mean '") as error:
        parse({**NEEDED, name: "1"}, "streaming")
    assert near in str(error.value)
    with pytest.raises(OptionError, match=r"no option 'foo'; known: .*startingOffsets"):
        parse({**NEEDED, "foo": "1"}, "streaming")


def test_values_stay_as_they_are_unless_a_payload_is_named():
    assert parse(NEEDED, "batch").payload == "raw"
    assert parse({**NEEDED, "payload": "DCGM"}, "streaming").payload == "dcgm"
    with pytest.raises(OptionError, match="payload must be one of raw, json, csv, dcgm"):
        parse({**NEEDED, "payload": "avro"}, "batch")


def test_names_have_no_case_as_everywhere_in_spark():
    assert parse({"SERVERS": "h:1", "StreamPattern": "a.*"}, "batch").pattern == "a.*"


@pytest.mark.parametrize(
    ("given", "streams"),
    [({"stream": "a,b"}, ("a,b",)), ({"streams": "b, a"}, ("a", "b"))],
)
def test_streams_are_named_one_by_one_or_in_a_list(given, streams):
    assert parse({"servers": "h:1", **given}, "batch").streams == streams


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"stream": "a", "streams": "a"},
        {"streams": "a,,b"},
        {"streams": "a,a"},
        {"stream": ""},
        {"streamPattern": "["},
        {"stream": "a", "servers": ""},
        {"stream": "a", "servers": "h"},
        {"stream": "a", "servers": "h:1,h:99999"},
        {"stream": "a", "maxTasks": "0"},
        {"stream": "a", "maxTasks": "two"},
        {"stream": "a", "minPartitions": "3", "maxTasks": "2"},
        {"stream": "a", "failOnDataLoss": "yes"},
        {"stream": "a", "startingTimestamp": "2030-01-01"},
        {"stream": "a", "startingTimestamp": "1", "startingOffsets": "earliest"},
        {"stream": "a", "startingOffsets": "first"},
        {"stream": "a", "startingOffsets": "[1]"},
        {"stream": "a", "startingOffsets": '{"a": {"0": -3}}'},
        {"stream": "a", "startingOffsets": '{"a": {"0": 1.5}}'},
        {"stream": "a", "startingOffsets": '{"a": {"0": true}}'},
        {"stream": "a", "startingOffsets": '{"a": {"x": 1}}'},
        {"stream": "a", "startingOffsets": '{"a": {"-1": 1}}'},
        {"stream": "a", "startingOffsets": '{"a": {"0": 9223372036854775808}}'},
        {"stream": "a", "startingOffsets": "[" * 100_000},
        {"stream": "a", "startingTimestamp": "9223372036854775808"},
        {"stream": "a", "maxTasks": "9" * 5000},
        {"streamPattern": "(" * 3000},
        {"streamPattern": "a{99999999999}"},
    ],
)
@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_what_is_malformed_or_contradicts_is_refused(given, kind):
    with pytest.raises(OptionError) as error:
        parse({"servers": "h:1", **given}, kind)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"endingOffsets": "latest"}, "streaming"),
        ({"endingTimestamp": "1"}, "streaming"),
        ({"maxOffsetsPerTrigger": "1"}, "batch"),
        ({"groupId": "g"}, "batch"),
    ],
)
def test_an_option_of_the_other_kind_of_read_is_refused(given, kind):
    with pytest.raises(OptionError, match=f"option {next(iter(given))} is for"):
        parse({**NEEDED, **given}, kind)


def test_a_name_that_no_stream_or_group_can_have_is_refused_before_anything_is_asked():
    longest = {"stream": "s" * 249, "groupId": "ü" * 127}
    assert parse({"servers": "h:1", **longest}, "streaming").group == "ü" * 127
    for name, value in (("stream", "s" * 250), ("groupId", "ü" * 128)):
        with pytest.raises(OptionError, match=f"option {name}: a name has") as error:
            parse({"servers": "h:1", **longest, name: value}, "streaming")
        assert len(str(error.value)) < 400


def test_an_end_cannot_be_the_beginning():
    for ending in ("earliest", '{"s": {"0": -2}}'):
        with pytest.raises(OptionError, match="endingOffsets"):
            parse({**NEEDED, "endingOffsets": ending}, "batch")


def test_offsets_are_read_as_sparks_kafka_source_writes_them():
    options = parse({**NEEDED, "startingOffsets": '{"s": {"0": 7, "1": -1, "2": -2}}'}, "batch")
    assert options.starting == {"s": {0: 7, 1: -1, 2: -2}}
