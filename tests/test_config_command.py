"""`headrace config`: what a node would make of its settings, without a node."""

import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import headrace
from headrace.config import Config, load
from headrace.config.changes import changes, is_live
from headrace.config.lines import lines_of
from headrace.config.reference import json_schema, settings

FILE = """# a node
[node]
name = "north"

[mqtt]
tls_bind = "off"
unix_mode = "0600"
ws_origins = [
    "https://a.example",  # the console
    "https://b.example",
]

[limits]
stall = "1s"
retained_bytes = "1MiB"

[streams.rooms]
filters = ["rooms/#"]
"retention.ms" = "30d"
max.message.bytes = 4096
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "headrace.toml"
    path.write_text(FILE)
    return path


def test_check_says_yes_or_names_file_and_line(file):
    done = headrace("config", "check", "--config", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: a node can start with it\n")
    near = "no stream setting 'retention.mss'; did you mean 'retention.ms'?"
    for wrong, message in (
        ("[limits]\nstal = 3", "2: [limits] stal: unknown; did you mean 'stall'?"),
        ("[streams.a]\nkey = 'x'", "1: [streams.a]: stream 'a': key \"x\" is none of topic"),
        ("[streams.a]\n\n'retention.mss' = 1", f"3: [streams.a] retention.mss: {near}"),
        ("\n[kafka]\nbind = '0.0.0.0:9092'", "kafka at 0.0.0.0:9092 would be open to everyone"),
    ):
        file.write_text(wrong)
        done = headrace("config", "check", "--config", str(file))
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) <= 3


def test_show_says_who_says_so_and_is_a_file_itself(file, tmp_path):
    variables = {"HEADRACE_LIMITS__SESSIONS": "12"}
    shown = headrace("config", "show", "--config", str(file), **variables)
    assert shown.returncode == 0, shown.stderr
    lines = {re.sub(" +# ", " # ", line) for line in shown.stdout.splitlines()}
    assert f'name = "north" # {file}:3' in lines
    assert f'tls_bind = "off" # {file}:6' in lines
    assert f'retained_bytes = "1MiB" # {file}:15' in lines
    assert f'"retention.ms" = "30d" # {file}:19' in lines
    assert "sessions = 12 # HEADRACE_LIMITS__SESSIONS" in lines
    assert "receive_maximum = 1024 # default" in lines
    assert "# unix_path: not set" in lines
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    ports = dict.fromkeys(("HEADRACE_MQTT__WS_BIND", "HEADRACE_FRAME__BIND"), "127.0.0.1:0")
    assert load(again) == load(file, variables | ports)


def test_show_as_json(file):
    shown = json.loads(headrace("config", "show", "--config", str(file), "--json").stdout)
    assert shown["limits"]["stall"] == {"value": "1s", "source": f"{file}:14", "live": True}
    assert shown["mqtt"]["unix_path"] == {"value": None, "source": "default", "live": False}
    assert shown["streams.rooms"]["max.message.bytes"]["source"] == f"{file}:20"


def test_every_default_reads_back_from_the_schema():
    schema = json_schema()
    properties = {
        table: schema["$defs"][part["$ref"].rpartition("/")[2]]["properties"]
        for table, part in schema["properties"].items()
        if table not in {"streams", "queues"}
    }
    assert {(table, key) for table, keys in properties.items() for key in keys} == {
        (table, key) for table, key, _ in settings()
    }
    defaults = {
        table: {key: part["default"] for key, part in keys.items() if "default" in part}
        for table, keys in properties.items()
    }
    assert Config.model_validate(defaults) == Config()
    assert all(part["description"] for keys in properties.values() for part in keys.values())


def test_the_schema_is_printed():
    schema = json.loads(headrace("config", "schema").stdout)
    assert schema["additionalProperties"] is False
    streams = schema["$defs"]["StreamSettings"]["properties"]
    assert streams["retention.ms"]["anyOf"][0] == {
        "type": "integer", "minimum": -1, "maximum": 2**63 - 1,
    }  # fmt: skip
    assert schema["$defs"]["LimitSettings"]["properties"]["stall"]["x-live"] is True


# --- lines ---------------------------------------------------------------------------------------

KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=5).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
)
VALUES = st.sampled_from(
    [
        "1", "true", '"a # b = [c]"', "'[x]'", '"""\n[no]\nkey = 1\n\\""""', "'''\n[no]\n'''",
        "[\n  1, # = ]\n  [2],\n]", "{ a = 1, b = [ 'x' ] }", "1979-05-27T07:32:00Z", '""', "[]",
    ]
)  # fmt: skip


@given(st.lists(st.tuples(KEYS, st.lists(st.tuples(KEYS, VALUES), max_size=4)), max_size=4))
def test_lines_are_those_of_the_keys_whatever_the_values_are(tables):
    text = ""
    expected = {}
    for table, keys in tables:
        name = next(iter(tomllib.loads(f"{table} = 0")))
        if name in expected:
            continue
        text += f"\n# [comment]\n  [ {table} ] # = 3\n"
        expected[name] = text.count("\n")
        for key, value in keys:
            part = next(iter(tomllib.loads(f"{key} = 0")))
            if f"{name}.{part}" not in expected:
                expected[f"{name}.{part}"] = text.count("\n") + 1
                text += f"{key} = {value} # x\n"
    tomllib.loads(text)
    lines = lines_of(text)
    assert {name: lines[name] for name in expected} == expected


def test_tables_of_a_list_have_lines_of_their_own():
    text = "[a]\nb = 1\n[[a.c]]\nd = 1\n\n[[a.c]]\nd = [\n  2]\ne = 3\n"
    lines = lines_of(text)
    assert (lines["a.c"], lines["a.c.0"], lines["a.c.0.d"]) == (3, 3, 4)
    assert (lines["a.c.1"], lines["a.c.1.d"], lines["a.c.1.e"]) == (6, 7, 9)


# --- what a reload takes -------------------------------------------------------------------------


def test_what_cannot_change_live_stays_and_is_told_of():
    before = Config()
    wanted = {
        "mqtt": {"bind": "127.0.0.1:1", "overflow": "disconnect"},
        "limits": {"stall": "1s"},
        "streams": {"a": {"partitions": 2}},
    }
    after = Config.model_validate(wanted)
    found = changes(before, after)
    assert [each.name for each in found.live] == ["mqtt.overflow", "limits.stall", "streams.a"]
    assert [each.name for each in found.restart] == ["mqtt.bind"]
    assert found.config.mqtt.bind == before.mqtt.bind
    assert (found.config.mqtt.overflow, found.config.limits.stall) == ("disconnect", 1000)
    again = changes(found.config, after)
    assert (again.live, [each.name for each in again.restart]) == ((), ["mqtt.bind"])


def test_only_settings_that_exist_change_live():
    known = {(table, key) for table, key, _ in settings()}
    from headrace.config.changes import _LIVE  # noqa: PLC0415 - a table of this module alone

    assert {(table, key) for table, keys in _LIVE.items() for key in keys} <= known
    assert not is_live("mqtt", "bind")


def check(tmp_path, text, **extra):
    path = tmp_path / "headrace.toml"
    path.write_text(text, encoding="utf-8")
    return headrace("config", "check", "--config", str(path), **extra)


def test_check_says_how_many_more_there_are(tmp_path):
    wrong = "".join(f"no_{number} = 1\n" for number in range(4))
    told = check(tmp_path, f'[limits]\n{wrong}[streams.s]\npartitions = 1\n"retention.ms" = "x"\n')
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 3
    assert told.stderr.endswith(" (and 2 more)\n")


@pytest.mark.parametrize(
    "streams",
    ['"retention.ms" = "x"', "partitions = 1\nfilters = ['a/#/b']"],
    ids=["a setting", "what it means"],
)
def test_check_tells_of_every_stream(tmp_path, streams):
    told = check(tmp_path, f"[streams.a]\n{streams}\n[streams.b]\n{streams}\n")
    assert told.returncode == 2
    first, second = told.stderr.splitlines()
    assert "[streams.a]" in first
    assert "[streams.b]" in second


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[streams.rooms]\nretention_ms = '1d'", "did you mean 'retention.ms'"),
        ("[streams.rooms]\npartition = 1", "did you mean 'partitions'"),
        (
            "[[access.rules]]\nallow = ['all']\n[[access.rules]]\nallow = ['all']\ntopic = []",
            "headrace.toml:5: [[access.rules]] rule 2 topic: unknown",
        ),
        ("[mqtt]\ntls_certificate = '/no.pem'", "[mqtt] tls_certificate: /no.pem cannot be read"),
        (
            "[mqtt]\nbind = '127.0.0.1:9092'",
            "kafka at 127.0.0.1:9092 and mqtt at 127.0.0.1:9092 want one port",
        ),
    ],
)
def test_check_names_what_a_start_would_stumble_over(tmp_path, text, told):
    refused = check(tmp_path, text)
    assert refused.returncode == 2
    assert told in refused.stderr


def test_a_file_may_begin_with_a_mark_of_its_encoding(tmp_path):
    assert check(tmp_path, "\ufeff[limits]\nstall = '1s'\n").returncode == 0


@pytest.mark.parametrize(
    ("text", "extra", "place"),
    [
        ("[log]\nretention_ms = 30", {}, "headrace.toml:2: [log] retention_ms"),
        ("", {"HEADRACE_LOG__RETENTION_MS": "604800"}, "HEADRACE_LOG__RETENTION_MS"),
        ("[streams.s]\nretention.ms = '30'", {}, "headrace.toml:2: [streams.s] retention.ms"),
    ],
)
def test_a_time_of_retention_without_a_unit_is_doubted(tmp_path, text, extra, place):
    told = check(tmp_path, text, **extra)
    assert told.returncode == 0
    (line,) = told.stderr.splitlines()
    assert line.startswith("warning: ")
    assert f"{place}: " in line
    assert "is taken as milliseconds" in line


@pytest.mark.parametrize("value", ["-1", "'30ms'", "86400000", "'7d'"])
def test_a_time_of_retention_that_is_meant_is_not_doubted(tmp_path, value):
    assert check(tmp_path, f"[log]\nretention_ms = {value}").stderr == ""
