"""What `headrace bench` keeps and shows: the file of a result, its page, its Markdown."""

import json
import re
import resource
import runpy
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, environment, headrace
from headrace.bench.figures import middle_of
from headrace.bench.spark import Row as SparkRow
from headrace.bench.suite.markdown import markdown
from headrace.bench.suite.page import page, sheet
from headrace.bench.suite.results import SCHEMA, Measured, Result, Row
from headrace.bench.suite.results_json import from_json, read, to_json
from headrace.bench.suite.words import FAULTS, faults, number, ratio, shortfalls
from headrace.cli.bench.page import PageFile, _place
from headrace.cli.bench.show import by_second
from headrace.cli.bench.spark import _shown
from headrace.errors import InputError

HOSTILE = "<script src=http://x/>\"'&|`\x00\u202e</title>"


def server(figure, *values, by_second=(), trouble=None, **figures):
    rounds = tuple({figure: value} | figures for value in values)
    middle = sorted(values)[len(values) // 2] if values else None
    sums = {
        name: value and value * (len(values) if name in FAULTS else 1)
        for name, value in figures.items()
    }
    return Measured(
        rounds=rounds, medians={figure: middle} | sums, by_second=by_second, trouble=trouble
    )


def row(workload, servers, **fields):
    given_fields = {
        "title": f"what {workload} does", "source": "open MQTT suite", "mode": "memory",
        "figure": "delivered_per_second", "unit": "messages/s",
    }  # fmt: skip
    return Row(workload=workload, servers=servers, **(given_fields | fields))


def rates(ours, theirs, **figures):
    return {
        "headrace": server("delivered_per_second", ours - 1, ours, ours + 1, by_second=(3, 5, 4)),
        "mosquitto": server("delivered_per_second", theirs - 1, theirs, theirs + 1, **figures),
    }


def result(*rows, **fields):
    kept = {
        "began": "2030-01-02T03:04:05+00:00", "seconds": 125.5,
        "machine": {"cores": 2, "processor": "some", "memory_bytes": 8 << 30, "commit_ms": 1.25},
        "settings": {"rounds": 3, "only": ["a", "b"], "quick": True},
        "peers": {
            "headrace": {
                "version": "1.0", "install": "pip install headrace",
                "promises": {"mqtt": {"memory": "received", "durable": None}},
            }
        },
        "left_out": {"nats": "no nats-server; apt-get install nats-server"},
    }  # fmt: skip
    return Result(rows=rows, **(kept | fields))


AHEAD, BEHIND, FURTHER = (
    row("ahead", rates(200, 100)),
    row("behind", rates(90, 100)),
    row("further", rates(50, 100), mode="durable"),
)


# --- the file -----------------------------------------------------------------------------------

names = st.text(max_size=12)
values = st.none() | st.integers(0, 1 << 40) | st.floats(0, 1e12)
figures = st.dictionaries(
    st.sampled_from(["rate", "p50_ms", "enqueue_p99_9_ms", "lost", "expected", "resident_bytes"])
    | names,
    values,
    max_size=6,
)
servers = st.builds(
    Measured,
    rounds=st.lists(figures, max_size=3).map(tuple),
    medians=figures,
    by_second=st.lists(st.integers(0, 1 << 40), max_size=5).map(tuple),
    trouble=st.none() | names,
)
moments = st.datetimes().map(lambda each: each.replace(year=2030).isoformat() + "+00:00")
rows = st.builds(
    Row,
    workload=names,
    title=names,
    source=st.sampled_from(["", "one", HOSTILE]),
    mode=st.sampled_from(["memory", "durable", HOSTILE]),
    figure=st.sampled_from(["rate", "p50_ms"]),
    unit=names,
    less_is_better=st.booleans(),
    servers=st.dictionaries(st.sampled_from(["headrace", "peer"]) | names, servers, max_size=3),
    bounds=st.dictionaries(st.sampled_from(["peer"]) | names, st.floats(0, 100), max_size=2),
    at_least=st.none() | st.floats(0, 1e9),
    note=names,
    ours=st.just("headrace") | names,
    began=st.just("") | moments,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
peers = st.fixed_dictionaries(
    {
        "version": names,
        "install": names,
        "promises": st.dictionaries(
            names, st.dictionaries(names, st.none() | names, max_size=2), max_size=2
        ),
    }
)
results = st.builds(
    Result,
    began=moments,
    seconds=st.floats(0, 1e6),
    machine=st.dictionaries(names, json_values, max_size=3),
    settings=st.dictionaries(names, json_values, max_size=3),
    peers=st.dictionaries(names, peers, max_size=2),
    left_out=st.dictionaries(names, names, max_size=2),
    rows=st.lists(rows, max_size=3).map(tuple),
    resumed=st.lists(moments, max_size=2).map(tuple),
)


@settings(max_examples=50)
@given(results)
def test_a_result_comes_back_from_its_file_as_it_was(kept):
    assert from_json(json.loads(json.dumps(to_json(kept)))) == kept


def changed(**fields):
    return to_json(result(AHEAD)) | fields


def in_row(**fields):
    value = changed()
    value["rows"][0] |= fields
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "no result"),
        ({"servers": {}}, "no result"),
        (changed(schema=SCHEMA + 1), f"schema {SCHEMA + 1}.*newer headrace"),
        (changed(schema=True), "schema must be a number"),
        (changed(rows=None), "rows must be a list; got None"),
        (changed(began="soon"), "began must be a time"),
        (changed(peers={"x": {"version": "1"}}), r"peers\['x'\].install is missing"),
        ({name: each for name, each in changed().items() if name != "rows"}, "rows is missing"),
        (in_row(less_is_better=1), r"rows\[0\].less_is_better must be true or false; got 1"),
        (in_row(at_least=float("nan")), r"rows\[0\].at_least must be a finite number"),
        (in_row(at_least=10**400), r"rows\[0\].at_least must be a finite number"),
        (in_row(servers={"x": 3}), r"rows\[0\].servers\['x'\] must be an object"),
    ],
)
def test_what_is_no_result_is_refused_in_a_line(value, words):
    with pytest.raises(InputError, match=words) as caught:
        from_json(value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_cut_or_not_there_is_named(tmp_path):
    file = tmp_path / "result.json"
    with pytest.raises(InputError, match=r"result.json: No such file"):
        read(file)
    file.write_text(json.dumps(changed())[:-20])
    with pytest.raises(InputError, match=r"result.json: is cut, or no JSON"):
        read(file)
    file.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(InputError, match=r"result.json: is cut, or no JSON"):
        read(file)
    file.write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"result.json: is cut, or no JSON"):
        read(file)
    file.write_text(json.dumps(changed()))
    assert read(file) == result(AHEAD)


# --- words --------------------------------------------------------------------------------------


def test_numbers_are_short_and_what_is_below_one_never_reads_as_one():
    assert [number(each) for each in (None, 0, 7, 1_234_567, 0.0512, 3.14159, 99.96, 123.4)] == [
        "-", "0", "7", "1,234,567", "0.051", "3.14", "100.0", "123",
    ]  # fmt: skip
    assert [ratio(each) for each in (None, 0.999, 1.0, 1.005, 12.34, 1234.0)] == [
        "-", "0.99", "1.00", "1.00", "12.3", "1,234",
    ]  # fmt: skip


def test_a_row_says_in_what_it_falls_short():
    assert shortfalls(AHEAD) == []
    assert shortfalls(BEHIND) == ["0.90 beside mosquitto"]
    near = row("near", rates(99.5, 100))
    assert shortfalls(near) == ["0.99 beside mosquitto, within what rounds differ by"]
    bound = row("bound", rates(150, 100), bounds={"mosquitto": 2}, at_least=80_000)
    assert shortfalls(bound) == [
        "150 messages/s, and 80,000 is to be reached",
        "1.50 beside mosquitto, and 2 is to be reached",
    ]
    relay = row("relay", rates(80, 100), bounds={"mosquitto": 0.7})
    assert shortfalls(relay) == []
    slow = row("slow", rates(150, 100), less_is_better=True, unit="ms", at_least=100)
    assert shortfalls(slow) == [
        "150 ms, and at most 100 is to be reached",
        "0.66 beside mosquitto",
    ]


def test_a_row_in_which_headrace_failed_is_behind_all_others():
    failed = row("failed", {"headrace": Measured(rounds=(), medians={}, trouble="it died")})
    assert failed.is_behind()
    assert shortfalls(failed) == ["headrace has no figure: it died"]
    assert result(AHEAD, BEHIND, failed).losses_first() == [failed, BEHIND, AHEAD]


def test_what_a_server_did_to_messages_is_a_sentence():
    broken = server("rate", 1.0, 1.0, expected=1000, lost=10, reordered=2, disconnected=1)
    assert faults(broken) == [
        "lost 20 of 2,000 (1 %)", "reordered 4 of 2,000 (0.2 %)", "ended 2 connections",
    ]  # fmt: skip
    assert faults(server("rate", 1.0, lost=0, corrupted=None)) == []


def test_the_round_that_is_shown_is_the_one_next_to_the_median():
    assert middle_of([{"a": 9.0}, {"a": None}, {"a": 1.0}, {"a": 3.0}], "a") == 3
    assert middle_of([{"a": None}], "a") is None


# --- the page -----------------------------------------------------------------------------------


def tree_of(text):
    """The elements of a page, which is well-formed XML and loads nothing."""
    root = ET.fromstring(text)
    for element in root.iter():
        assert element.tag not in {"script", "link", "img", "iframe", "object", "base", "form"}
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action", "style", "xlink:href"}
            if name == "href":
                assert value.startswith("#")
    (style,) = root.iter("style")
    assert not re.search(r"url\(|@import|//", style.text)
    return root


def told(element):
    return " ".join(" ".join(element.itertext()).split())


@settings(max_examples=25)
@given(results)
def test_every_page_is_whole_and_has_every_row(kept):
    tables_of(markdown(kept))
    root = tree_of(page(kept))
    cards = {each.get("id") for each in root.iter("article")}
    assert cards == {f"row-{index}" for index in range(len(kept.rows))}
    assert {each.get("href")[1:] for each in root.iter("a")} == cards
    for picture in root.iter("svg"):
        assert picture.get("role") == "img"
        assert picture.get("aria-label") is not None


def test_rows_where_headrace_is_behind_come_first_the_furthest_before_the_others():
    root = tree_of(page(result(AHEAD, BEHIND, FURTHER)))
    parts = list(root.iter())
    (losses,) = (each for each in parts if each.get("id") == "behind")
    assert [each.get("href") for each in losses.iter("a")] == ["#row-2", "#row-1"]
    assert "0.50 beside mosquitto" in told(losses)
    assert parts.index(losses) < min(parts.index(each) for each in root.iter("article"))
    assert "3 rows; headrace is behind in 2" in told(root)
    assert "headrace is behind in none" in page(result(AHEAD))


def test_a_row_has_bars_ratios_latencies_faults_costs_and_rates():
    theirs = {"expected": 1000, "lost": 10, "reordered": 0, "p50_ms": 0.5, "max_ms": 12.0}
    ours = {"lost": 0, "duplicated": 0, "p50_ms": 0.25, "p99_9_ms": 3.0,
            "cpu_seconds_per_million": 2.5, "resident_bytes": 64 << 20}  # fmt: skip
    shown = row(
        "shown",
        {
            "mosquitto": server("delivered_per_second", 10.0, 12.0, 11.0, **theirs),
            "headrace": server("delivered_per_second", 20, 22, 24, by_second=(7, 9), **ours),
        },
    )
    (card,) = tree_of(page(result(shown))).iter("article")
    words = told(card)
    assert "mosquitto lost 30 of 3,000 (1 %)." in words
    assert "Nothing lost or duplicated: headrace." in words
    main, latency, _ = card.iter("table")
    lines = [told(each) for each in main.iter("tr")]
    assert [line.split()[0] for line in lines[1:]] == ["headrace", "mosquitto"]
    assert "20 to 24" in lines[1]
    assert "2.00" in lines[2]
    assert [told(each) for each in latency.iter("th")][1:6] == ["p50", "p90", "p99", "p99.9", "max"]
    labels = [each.get("aria-label") for each in card.iter("svg")]
    assert "headrace: 22 messages/s, 20 to 24" in labels
    assert "headrace: 7 to 9 a second" in labels
    assert "64.0 MiB" in words


def test_names_of_others_are_texts_and_nothing_else():
    odd = row(HOSTILE, {"headrace": server("delivered_per_second", 1.0), HOSTILE: server(
        "delivered_per_second", 2.0, by_second=(1, 2), lost=1, expected=5, trouble=HOSTILE
    )}, title=HOSTILE, source=HOSTILE, mode=HOSTILE, unit=HOSTILE, note=HOSTILE)  # fmt: skip
    odd_peer = {"version": HOSTILE, "install": HOSTILE, "promises": {HOSTILE: {HOSTILE: HOSTILE}}}
    kept = result(
        odd, peers={HOSTILE: odd_peer}, left_out={HOSTILE: HOSTILE},
        machine={HOSTILE: HOSTILE}, settings={HOSTILE: [HOSTILE]},
    )  # fmt: skip
    written = page(kept)
    told_of = told(tree_of(written))
    assert "<script" not in written
    assert "\u202e" not in written
    assert told_of.count("<script src=http://x/>\"'&|`\ufffd\ufffd</title>") > 10
    tables_of(markdown(kept))
    assert "<script" not in markdown(kept).replace("\\<", "")


def test_a_page_of_one_command_judges_nobody():
    rows = [row("pair", rates(50, 100), mode="")]
    root = tree_of(sheet("headrace bench it", "2030-01-02T03:04:05Z", {"qos": 1}, rows))
    assert "2030-01-02 03:04 UTC qos 1 pair what pair does" in told(root.find("body"))
    assert "0.50" in told(root)
    assert "Falls short" not in told(root)
    late = SparkRow("cold", "s", 14.0, "Spark alone", 7.0, target=12.0)
    root = tree_of(sheet("headrace bench spark", "2030-01-02T03:04:05Z", {}, [_shown(late)]))
    assert "Falls short: 14.0 s, and at most 12.0 is to be reached." in told(root)


# --- Markdown -----------------------------------------------------------------------------------


def tables_of(text):
    """The tables of a page, each with lines of one width."""
    tables = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
        elif tables[-1]:
            tables.append([])
    found = [each for each in tables if each]
    assert all(len(set(widths)) == 1 and len(widths) >= 2 for widths in found), text
    return found


def lines_of(text, workload):
    """Cells of the lines of a workload in memory mode, by broker, in the table of all rows."""
    _, _, rows = text.partition("## All rows")
    cells = [line.strip("| ").split(" | ") for line in rows.splitlines() if line.startswith("| ")]
    return {each[2]: each[4:] for each in cells if each[:2] == [workload, "memory"]}


def test_latencies_are_of_messages_and_not_of_what_else_was_timed():
    of_messages = server("rate", 1.0, connect_p50_ms=9.0, p50_ms=2.0, p99_ms=3.0)
    settled = server("rate", 1.0, enqueue_p50_ms=1.0, delivered_p50_ms=4.0, settled_p50_ms=5.0)
    none = server("rate", 1.0, connect_p50_ms=9.0, p50_ms=None)
    rows = [
        row(name, {"headrace": measured}, figure="rate")
        for name, measured in [("a", of_messages), ("b", settled), ("c", none)]
    ]
    text = markdown(result(*rows))
    assert lines_of(text, "a")["headrace"][3:8] == ["2.00", "-", "3.00", "-", "-"]
    assert lines_of(text, "b")["headrace"][3:8] == ["5.00", "-", "-", "-", "-"]
    assert lines_of(text, "c")["headrace"][3:8] == ["-"] * 5


def test_the_page_that_is_kept_has_the_median_where_a_row_is_about_it():
    kept = read(ROOT / "docs" / "benchmarks.json")
    text = markdown(kept)
    column = {"p50_ms": 3, "p99_ms": 5}
    about = [each for each in kept.rows if each.figure in column and each.mode == "memory"]
    assert len(about) > 5
    for each in about:
        cells = lines_of(text, each.workload)[each.ours]
        assert cells[column[each.figure]] == number(each.median(each.ours))


def test_a_ratio_whose_rounds_overlap_is_marked_on_both_sides_of_one():
    for ours, theirs in [((9, 11, 13), (8, 10, 12)), ((8, 10, 12), (9, 11, 13))]:
        servers = {"headrace": server("rate", *ours), "nats": server("rate", *theirs)}
        level = row("level", servers, figure="rate")
        assert lines_of(markdown(result(level)), "level")["nats"][2].startswith("≈ ")
        assert "1 of 1 ratios are within what rounds differ by" in markdown(result(level))
    assert "≈ " not in lines_of(markdown(result(AHEAD)), AHEAD.workload)["mosquitto"][2]


def test_a_longer_tail_and_a_higher_cost_are_told_where_the_row_is_ahead():
    def measured(rate, p99_ms, cpu):
        return server("rate", rate, p99_ms=p99_ms, cpu_seconds_per_million=cpu)

    ahead = row("ahead", {
        "headrace": measured(9.0, 30.0, 2.1), "nats": measured(1.0, 10.0, 1.0),
        "mosquitto": measured(1.0, 29.0, 2.0), "kafka": measured(1.0, None, None),
    }, figure="rate")  # fmt: skip
    _, _, text = markdown(result(ahead)).partition("## Where its tail is longer, or it costs more")
    text, _, _ = text.partition("## Messages")
    assert "| ahead | memory | nats | p99 30.0 ms beside 10.0; 2.10 CPU-s per million" in text
    assert "mosquitto" not in text
    assert "kafka" not in text


def test_the_page_says_how_to_measure_the_same_and_whom_it_did_not_ask():
    peers = {
        name: {"version": "1", "install": "", "promises": {}}
        for name in ("headrace", "nats", "mine")
    }
    settings = {"rounds": 5, "duration_seconds": 2.0, "server_cores": [0, 1], "quick": False}
    text = markdown(result(AHEAD, peers=peers, settings=settings, left_out={}))
    command = "headrace bench suite --peer nats --rounds 5 --duration 2000ms --server-cores 2"
    assert f"{command} --save docs/benchmarks.json\n" in text
    (told_of,) = [line for line in text.splitlines() if "was not asked for" in line]
    assert "mosquitto" in told_of
    assert "nats" not in told_of


def test_markdown_says_where_headrace_is_behind_before_all_else():
    lost = row("lost", rates(90, 100, lost=1, expected=100), note="a note")
    text = markdown(result(AHEAD, lost, FURTHER))
    losses, rest = text.split("## Messages that did not arrive as they should")
    assert losses.index("further") < losses.index("lost")
    assert "ahead" not in losses.partition("## Where")[2]
    assert "| lost | memory | mosquitto | lost 3 of 300 (1 %) |" in rest
    assert "nats: no nats-server; apt-get install nats-server" in rest
    assert "| ahead | memory | headrace | messages/s | 200 | 199 to 201 |  |" in rest
    assert "8.0 GiB" in rest
    assert "1.25 ms" in rest
    assert "a note" in rest


def test_pages_of_several_runs_say_when_each_row_was_measured():
    late = replace(BEHIND, began="2030-01-03T03:04:05Z")
    several = replace(result(AHEAD, late), resumed=["2030-01-03T00:00:00Z"])
    when = "2030-01-02 03:04 UTC to 2030-01-03 00:00 UTC, in 2 runs of "
    for shown in (markdown(several), told(tree_of(page(several)))):
        assert when in shown
        assert shown.count("Measured 2030-01-03 03:04 UTC.") == 1
    assert "Measured" not in markdown(result(AHEAD, late))


def test_rows_in_which_the_load_was_the_limit_say_so():
    servers = {
        name: replace(measured, medians=dict(measured.medians) | {"generator_busy": busy})
        for (name, measured), busy in zip(AHEAD.servers.items(), (0.97, 0.5), strict=False)
    }
    busy = result(replace(AHEAD, servers=servers))
    sentence = "The load itself was busy 97% of the time with headrace, and may be the limit."
    assert sentence in markdown(busy)
    assert sentence in told(tree_of(page(busy)))
    assert "may be the limit" not in markdown(result(AHEAD))


def test_the_page_of_a_committed_result_is_generated(tmp_path):
    tool = ROOT / "tools" / "benchmarks.py"
    kept, shown = tmp_path / "result.json", tmp_path / "page.md"
    kept.write_text(json.dumps(to_json(result(AHEAD, BEHIND))))
    assert runpy.run_path(str(tool))["render"](kept) == markdown(result(AHEAD, BEHIND))
    kept.write_text("{")
    ran = subprocess.run(
        [sys.executable, tool, kept, shown],
        capture_output=True, check=False, env=environment(), text=True,
    )  # fmt: skip
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert not shown.exists()


# --- where pages go -----------------------------------------------------------------------------


def test_a_page_that_cannot_be_written_leaves_the_one_before(tmp_path, capsys):
    file = PageFile(tmp_path / "page.html", "--html", "2030-01-02T03:04:05Z")
    file.write("the first")
    assert capsys.readouterr().err == f"written: {file.path}\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(click.ClickException, match=r"page.html cannot be written: File too la"):
            file.write("x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert file.path.read_text() == "the first"


def test_a_place_for_no_page_is_told_before_the_run(tmp_path):
    (tmp_path / "file").touch()
    for where, words in [
        ("", "is a folder"),
        ("nowhere/page.html", "is no folder in which"),
        ("file/page.html", "Not a directory"),
        ("x" * 300, "File name too long"),
    ]:
        with pytest.raises(click.BadParameter, match=words):
            _place(None, click.Option(["--html"]), tmp_path / where)
    ran = headrace("bench", "mqtt", "--mqtt", "127.0.0.1:1", "--html", str(tmp_path))
    assert ran.returncode == 2
    assert "--html" in ran.stderr
    assert len(ran.stderr.splitlines()) <= 3


def test_seconds_are_a_line_of_blocks(capsys):
    by_second("it", [])
    by_second("it", [0, 50, 100])
    assert capsys.readouterr().out == "it by second: ▁▅█ 0 to 100\n"
    by_second("it", range(600))
    assert len(capsys.readouterr().out.split()[3]) == 60


@pytest.mark.slow
def test_commands_write_the_page_of_what_they_measured(shared, tmp_path):
    quick = ("--warm-up", "100ms", "--duration", "1s", "--drain", "2s")
    mqtt = ("--mqtt", f"127.0.0.1:{shared.mqtt}")
    for kind, options in [
        ("mqtt", (*mqtt, *quick, "--rounds", "2")),
        ("queue", (*mqtt, *quick, "--url", shared.url, "--stuck", "1", "--publishers", "1")),
        ("kafka", ("connections", "--connections", "5", "--kafka", f"127.0.0.1:{shared.kafka}")),
    ]:
        file = tmp_path / f"{kind}.html"
        ran = headrace("bench", kind, *options, "--html", str(file))
        assert ran.returncode == 0, ran.stderr
        assert f"written: {file}" in ran.stderr
        root = tree_of(file.read_text(encoding="utf-8"))
        assert f"headrace bench {kind}" in told(root)
        assert list(root.iter("article"))
        assert ("settled by second: " in ran.stdout) is (kind == "queue")
        if kind != "kafka":
            assert any(each.get("class") == "rate ours" for each in root.iter("svg"))
