"""Files to readings: dialects, faults that pass, files that are refused, replays."""

import csv
import gzip
import io
from pathlib import Path

import pytest

from headrace.collect import CsvFile, Span, fleet, replayed
from headrace.collect.instants import format_instant, parse_instant
from headrace.collect.labels import parse_labels
from headrace.collect.replay import readings_of
from headrace.errors import InputError

PACKAGE_DATA = Path(__file__).parent.parent / "src/headrace/data"
DATA = Path(__file__).parent / "data"
TRACE = PACKAGE_DATA / "h200-1hz.csv.gz"
HEADER = (
    "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,"
    "container,pod,namespace,value,labels_raw"
)
ROW = (
    "2026-11-27T20:40:49.395Z,DCGM_FI_DEV_GPU_UTIL,0,nvidia0,GPU-1,NVIDIA H200,node-1,,train,ml,42,"
)


def read(path, text, *, name="x.csv"):
    file = path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(CsvFile(file))


# --- dialects ---------------------------------------------------------------------------------


def test_the_shipped_trace_is_read_whole():
    readings = list(CsvFile(TRACE))
    assert len(readings) == 7068
    assert len({reading.metric for reading in readings}) == 31
    first = readings[0]
    assert (first.timestamp, first.event_time) == (
        "2026-11-27T20:40:49.395Z",
        "2026-11-27T20:40:49.395000Z",
    )
    assert first.labels == {
        "driver_version": "580.159.04",
        "gpu": "0",
        "model_name": "NVIDIA H200",
    }
    assert sum(reading.raw == "nan" for reading in readings) == 1


def test_a_file_can_be_read_again():
    file = CsvFile(TRACE)
    assert sum(1 for _ in file) == sum(1 for _ in file) == 7068


def test_quoted_and_bare_cells_are_the_same(tmp_path):
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL).writerows(
        csv.reader([HEADER, *[ROW.replace("42", value) for value in ("1", "2")]])
    )
    bare = "\n".join([HEADER, ROW.replace("42", "1"), ROW.replace("42", "2")])
    assert read(tmp_path, quoted.getvalue()) == read(tmp_path, bare)


def test_gzip_is_told_by_content(tmp_path):
    text = f"{HEADER}\n{ROW}\n"
    assert read(tmp_path, gzip.compress(text.encode()), name="plain.csv") == read(
        tmp_path, text, name="named.csv.gz"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark(tmp_path, newline):
    text = "\ufeff" + newline.join([HEADER, ROW, "", ROW]) + newline
    assert [reading.raw for reading in read(tmp_path, text)] == ["42", "42"]


def test_columns_are_found_by_name_in_any_spelling(tmp_path):
    [reading] = read(
        tmp_path,
        "value,hostname,UUID,model_name,Metric_Name,timestamp,case\n"
        "7,node-9,GPU-9,H100,DCGM_FI_DEV_GPU_TEMP,1893457920000,ignored\n",
    )
    assert (reading.raw, reading.host, reading.uuid) == ("7", "node-9", "GPU-9")
    assert reading.labels == {"model_name": "H100"}
    assert reading.event_time == "2030-01-01T00:32:00.000000Z"


def test_only_four_columns_are_needed(tmp_path):
    [reading] = read(tmp_path, "timestamp,metric_name,uuid,value\n2030-01-01T00:00:00Z,M,U,1\n")
    assert (reading.host, reading.device, reading.labels) == ("", "", {})


def test_columns_of_the_scheduler_become_labels(tmp_path):
    [reading] = read(tmp_path, f"{HEADER}\n{ROW}\n")
    assert reading.labels["pod"] == "train"
    assert reading.labels["namespace"] == "ml"
    assert "container" not in reading.labels


def test_a_header_alone_has_no_readings(tmp_path):
    assert read(tmp_path, HEADER) == []


# --- faults that pass -----------------------------------------------------------------------


def test_every_faulty_row_is_read_with_its_text():
    with (DATA / "dcgm_bad.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    readings = list(CsvFile(DATA / "dcgm_bad.csv"))
    assert [reading.raw for reading in readings] == [row["value"] for row in rows]
    assert [reading.timestamp for reading in readings] == [row["timestamp"] for row in rows]
    slices = [reading.labels["GPU_I_ID"] for reading in readings if "GPU_I_ID" in reading.labels]
    assert slices == ["3", "4"]
    [noted] = [reading for reading in readings if "label_note" in reading.labels]
    assert noted.labels["label_note"] == 'a=1,b="x"'
    [named_zone] = [reading for reading in readings if reading.timestamp.endswith("PST")]
    assert named_zone.event_time == "2030-01-01 00:30:00 PST"


def test_short_and_long_rows_are_readings(tmp_path):
    short, long = read(
        tmp_path, f"timestamp,metric_name,uuid,value\n2030-01-01T00:00:00Z,M\n{'x,' * 20}\n"
    )
    assert (short.metric, short.uuid, short.raw) == ("M", "", "")
    assert (long.timestamp, long.raw, long.host) == ("x", "x", "")


def test_bytes_that_are_no_utf_8_stay_visible(tmp_path):
    [reading] = read(
        tmp_path, b"timestamp,metric_name,uuid,value\n2030-01-01T00:00:00Z,M,U,4\xff2\n"
    )
    assert reading.raw == r"4\xff2"


def test_a_label_that_contradicts_its_column_stays(tmp_path):
    text = f'{HEADER}\n{ROW}"UUID=""GPU-2"",device=""nvidia0"",Hostname=""node-1"""\n'
    [reading] = read(tmp_path, text)
    assert reading.labels["UUID"] == "GPU-2"
    assert "device" not in reading.labels
    assert "Hostname" not in reading.labels


# --- files that are refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no first line"),
        (b"a,b,c\n1,2,3\n", "no CSV of GPU readings"),
        (b"timestamp,uuid\n", "lacks metric_name, value"),
        (b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe" * 50, "no CSV of GPU readings"),
        (gzip.compress(TRACE.read_bytes() * 2)[:-20], "ends too soon"),
        (TRACE.read_bytes()[:20_000], "ends too soon"),
        (TRACE.read_bytes()[:-8] + bytes(8), "CRC"),
        (b"\x1f\x8bno gzip at all", "cannot be read"),
        (gzip.compress(b"", mtime=0), "no first line"),
    ],
)
def test_a_file_that_is_no_csv_of_readings_is_refused(tmp_path, content, says):
    with pytest.raises(InputError, match=says) as refused:
        read(tmp_path, content)
    assert len(str(refused.value).splitlines()) <= 3


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        CsvFile(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        CsvFile(tmp_path)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_without_end_is_refused(tmp_path, end):
    with pytest.raises(InputError, match="line 2: longer than 1048576 characters"):
        read(tmp_path, "timestamp,metric_name,uuid,value\n" + "x," * 3_000_000 + end)
    with pytest.raises(InputError, match="line 1: longer than"):
        CsvFile(Path("/dev/zero"))


def test_a_quote_that_never_closes_names_its_line(tmp_path):
    text = "timestamp,metric_name,uuid,value\n" + '"' + "x" * 200_000
    with pytest.raises(InputError, match="line 2"):
        read(tmp_path, text)


# --- grammars -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ('a="1"', {"a": "1"}),
        ('{a="1", b="2",}', {"a": "1", "b": "2"}),
        (r'a="say \"hi\", \\ and\nbye",b=""', {"a": 'say "hi", \\ and\nbye', "b": ""}),
        ('a="x=1,y=2",b="}"', {"a": "x=1,y=2", "b": "}"}),
        ('a="1",b=2', {"a": "1", "labels_raw": 'a="1",b=2'}),
        ('a="1', {"labels_raw": 'a="1'}),
        ('a="1"b="2"', {"labels_raw": 'a="1"b="2"'}),
    ],
)
def test_label_text(text, labels):
    assert parse_labels(text) == labels


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01.5z", 1_500_000),
        ("1970-01-01T02:00:00.000001+02:00", 1),
        ("1970-01-01T00:00:00.1234567Z", 123_456),
        ("1893457920", 1_893_457_920_000_000),
        ("1893457920000", 1_893_457_920_000_000),
        ("1893457920000000", 1_893_457_920_000_000),
        ("1893457920000000999", 1_893_457_920_000_000),
        ("2030-01-01T00:00:00", None),
        ("2030-01-01", None),
        ("2030-01-01 00:30:00 PST", None),
        ("2030-02-30T00:00:00Z", None),
        ("2030-01-01T00:00:60Z", None),
        ("12345", None),
        ("", None),
        ("n/a", None),
    ],
)
def test_instants(text, instant):
    assert parse_instant(text) == instant
    if instant is not None:
        assert parse_instant(format_instant(instant)) == instant


# --- replay -------------------------------------------------------------------------------------


def test_a_fleet_has_new_ids_hosts_of_eight_and_staggered_starts():
    trace = list(CsvFile(TRACE))
    replay = list(fleet(trace, 10))
    assert len(replay) == 10 * len(trace)
    assert replay == list(fleet(trace, 10))
    by_gpu = {}
    for reading in replay:
        by_gpu.setdefault(reading.uuid, []).append(reading)
    assert len(by_gpu) == 10
    assert by_gpu[trace[0].uuid] == trace
    starts = sorted(readings[0].event_us for readings in by_gpu.values())
    assert len(set(starts)) == 10
    assert starts[-1] - starts[0] < Span.of(trace).period_us
    times = [reading.event_us for reading in replay]
    assert times == sorted(times)
    places = {(rows[0].host, rows[0].device) for rows in by_gpu.values()}
    assert len(places) == 10
    assert {host for host, _ in places} == {"gpu-node-01", "gpu-node-01-2"}
    for rows in by_gpu.values():
        assert [row.raw for row in rows] == [row.raw for row in trace]


def test_a_fleet_of_several_gpus_takes_the_first_then_copies():
    trace = list(CsvFile(DATA / "dcgm_snapshot.csv"))
    uuids = list(dict.fromkeys(reading.uuid for reading in trace))
    assert {reading.uuid for reading in fleet(trace, 3)} == set(uuids[:3])
    doubled = list(fleet(trace, 2 * len(uuids)))
    assert len(doubled) == 2 * len(trace)
    assert len({reading.uuid for reading in doubled}) == 2 * len(uuids)
    slots = {(reading.host, reading.device): reading.uuid for reading in doubled}
    assert len(slots) == 2 * len(uuids)


@pytest.mark.parametrize("gpus", [None, 1, 3, 15, 40])
def test_the_readings_of_a_replay_are_known_before(gpus):
    for path in (TRACE, DATA / "dcgm_snapshot.csv", DATA / "dcgm_bad.csv"):
        trace = CsvFile(path)
        assert readings_of(trace, gpus) == sum(1 for _ in replayed(trace, gpus, loop=False))
    assert readings_of([], gpus) == 0


def test_faults_keep_their_text_in_a_fleet():
    trace = list(CsvFile(DATA / "dcgm_bad.csv"))
    identities = len({reading.uuid or (reading.host, reading.device) for reading in trace})
    replay = list(fleet(trace, 2 * identities))
    assert len(replay) == 2 * len(trace)
    assert sum(reading.timestamp.endswith("PST") for reading in replay) == 2
    assert sum(not reading.uuid for reading in replay) == 2


@pytest.mark.parametrize("gpus", [None, 1, 3])
def test_a_loop_never_repeats_a_time(gpus):
    trace = list(CsvFile(TRACE))
    length = len(trace) * (gpus or 1)
    rounds = replayed(CsvFile(TRACE), gpus, loop=True)
    played = [next(rounds) for _ in range(3 * length)]
    assert len({(r.uuid, r.metric, r.event_us) for r in played}) == 3 * length
    times = [reading.event_us for reading in played]
    assert times == sorted(times)
    second = played[length]
    assert parse_instant(second.timestamp) == second.event_us > trace[-1].event_us


def test_a_loop_over_one_instant_moves_on_and_an_empty_one_ends():
    reading = next(iter(CsvFile(TRACE)))
    rounds = replayed([reading], None, loop=True)
    assert len({next(rounds).event_us for _ in range(5)}) == 5
    assert list(replayed([], None, loop=True)) == []
    assert list(replayed([], 4, loop=True)) == []


def test_without_a_loop_a_trace_is_played_once_as_it_is():
    assert list(replayed(CsvFile(TRACE), None, loop=False)) == list(CsvFile(TRACE))
