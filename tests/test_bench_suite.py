"""`headrace bench suite`: servers start, alternate and end; ratios and troubles are told."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import SOAK_SECONDS, environment, headrace, wait_for
from headrace.bench.suite import resumed
from headrace.bench.suite import run as suite
from headrace.bench.suite.outcome import measured_of, row_of
from headrace.bench.suite.peers import custom
from headrace.bench.suite.peers.custom import Custom
from headrace.bench.suite.peers.peer import Door, Feature, Mode, Running
from headrace.bench.suite.results import Result
from headrace.bench.suite.workloads import Round, Workload
from headrace.errors import ConfigError, InputError


def workload(**more):
    given = {
        "name": "it", "title": "what it does", "source": "here", "door": Door.KAFKA,
        "modes": (Mode.MEMORY,), "figure": "rate", "unit": "messages/s", "once": None,
    }  # fmt: skip
    return Workload(**given | more)


def row(servers, **more):
    measured = {
        name: measured_of("rate", [Round(figures={"rate": value, "lost": lost})])
        for name, (value, lost) in servers.items()
    }
    return row_of(workload(**more), Mode.MEMORY, measured)


# --- what is kept of rounds ---------------------------------------------------------------------


def test_a_round_with_trouble_is_told_and_has_no_place_in_medians():
    rounds = [
        Round(figures={"rate": 10.0, "lost": 1}, by_second=[1]),
        Round(figures={"rate": 99.0, "lost": 5}, by_second=[2], trouble="it fell"),
        Round(figures={"rate": 30.0, "lost": 0}, by_second=[3]),
        Round(figures={}, trouble="it did not come up"),
        Round(figures={"rate": 28.0, "lost": 0}, by_second=[4]),
    ]
    measured = measured_of("rate", rounds)
    assert measured.medians == {"rate": 28.0, "lost": 6}
    assert measured.faults() == {"lost": 6}
    assert (measured.trouble, measured.by_second) == ("it fell", [4])
    assert measured.spread("rate") == (10.0, 99.0)


def test_who_never_had_a_round_has_no_figure_and_no_ratio():
    failed = measured_of("rate", [Round(figures={}, trouble="it did not come up")])
    well = measured_of("rate", [Round(figures={"rate": 2.0})])
    found = row_of(workload(), Mode.MEMORY, {"headrace": well, "other": failed})
    assert (found.ratios(), found.is_behind()) == ({}, False)
    assert row_of(workload(), Mode.MEMORY, {"headrace": failed, "other": well}).is_behind()


@pytest.mark.parametrize(
    ("servers", "more", "ratio", "is_behind"),
    [
        ({"headrace": (8.0, 0), "other": (2.0, 0)}, {}, 4.0, False),
        ({"headrace": (2.0, 0), "other": (8.0, 0)}, {}, 0.25, True),
        ({"headrace": (2.0, 0), "other": (8.0, 0)}, {"less_is_better": True}, 4.0, False),
        ({"headrace": (8.0, 0), "other": (2.0, 0)}, {"bounds": {"other": 5.0}}, 4.0, True),
        ({"headrace": (7.5, 0), "other": (10.0, 0)}, {"bounds": {"other": 0.7}}, 0.75, False),
        ({"headrace": (8.0, 0), "other": (2.0, 0)}, {"bounds": {"absent": 5.0}}, 4.0, False),
        ({"headrace": (8.0, 0), "other": (2.0, 0)}, {"at_least": 9.0}, 4.0, True),
        ({"headrace": (8.0, 1), "other": (2.0, 0)}, {}, 4.0, True),
        ({"headrace": (8.0, 0), "other": (2.0, 1)}, {}, 4.0, False),
    ],
)
def test_a_row_is_behind_where_it_is_slower_or_below_its_bounds_or_has_lost(
    servers, more, ratio, is_behind
):
    found = row(servers, **more)
    assert found.ratios() == {"other": ratio}
    assert found.is_behind() == is_behind


def test_the_furthest_behind_comes_first():
    rows = [
        row({"headrace": (value, 0), "other": (10.0, 0)}, name=name)
        for name, value in [("ahead", 20.0), ("near", 9.0), ("far", 1.0), ("even", 10.0)]
    ]
    result = Result(
        began="2026-11-30T12:00:00+00:00", seconds=1.0, machine={}, settings={}, peers={},
        left_out={}, rows=rows,
    )  # fmt: skip
    assert [each.workload for each in result.losses_first()] == ["far", "near", "ahead", "even"]


# --- servers --------------------------------------------------------------------------------------


LISTENS = f"{sys.executable} -m http.server {{kafka_port}} --bind 127.0.0.1 --directory {{folder}}"


def server(name, **more):
    return Custom(name=name, command=LISTENS, doors=frozenset({Door.KAFKA}), **more)


def ran(tmp_path, peers, *workloads, modes=(Mode.MEMORY,), is_spread=False):
    servers, load = suite.split_cores()
    plan = suite.Plan(
        workloads=workloads, peers=peers, modes=modes, rounds=3, folder=tmp_path,
        server_cores=servers, load_cores=load, is_spread=is_spread,
    )  # fmt: skip
    rows = []
    suite.run(plan, rows.append)
    assert list(tmp_path.iterdir()) == []
    return rows


def threads(pid):
    return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]


def test_rounds_alternate_on_cores_of_their_own_and_servers_stay(tmp_path):
    seen = []
    before = os.sched_getaffinity(0)
    servers, load = suite.split_cores()

    def once(running, _mode):
        for thread in threads(running.pid):
            assert os.sched_getaffinity(thread) == servers
        assert os.sched_getaffinity(0) == load
        seen.append(running.pid)
        return Round(figures={"rate": 1.0})

    peers = [server("headrace"), server("other")]
    first, second = ran(tmp_path, peers, workload(once=once), workload(name="fresh", once=once,
                                                                       is_fresh=True))  # fmt: skip
    for found in (first, second):
        assert {name: each.trouble for name, each in found.servers.items()} == {
            "headrace": None, "other": None,
        }  # fmt: skip
    turns = [0, 1, 1, 0, 0, 1]  # nobody is always the first
    assert seen == [seen[turn] for turn in turns] + [seen[6 + turn] for turn in turns]
    assert len(set(seen)) == 4
    assert os.sched_getaffinity(0) == before
    for pid in seen:
        assert not Path(f"/proc/{pid}").exists()


def test_rounds_of_a_row_may_be_spread_over_the_run(tmp_path):
    seen = []

    def once(name):
        def measured(running, _mode):
            seen.append((name, running and running.pid))
            return Round(figures={"rate": float(len(seen))})

        return measured

    rows = ran(
        tmp_path, [server("headrace"), server("other")],
        workload(once=once("a")), workload(name="b", once=once("b"), is_fresh=True),
        workload(name="c", once=once("c"), door=None, is_exact=True), is_spread=True,
    )  # fmt: skip
    assert [name for name, _ in seen] == [*"aabbc", *"aabb", *"aabb"]
    of_b = {pid for name, pid in seen if name == "b"}
    assert len(of_b) == 6, "servers start anew before each"
    a, b, c = rows
    assert [found["rate"] for found in a.servers["headrace"].rounds] == [1.0, 7.0, 10.0]
    assert (len(b.servers["other"].rounds), len(c.servers["headrace"].rounds)) == (3, 1)
    assert a.began <= b.began <= c.began


def test_a_server_that_ends_in_a_round_is_told_and_starts_again(tmp_path):
    seen = []

    def once(running, _mode):
        seen.append(running.pid)
        if len(seen) == 3:  # the second round of the second server
            os.kill(running.pid, signal.SIGKILL)
            wait_for(lambda: " Z " in Path(f"/proc/{running.pid}/stat").read_text())
            raise ConnectionResetError("connection reset")
        return Round(figures={"rate": 1.0})

    (found,) = ran(tmp_path, [server("headrace"), server("other")], workload(once=once))
    other = found.servers["other"]
    assert other.trouble == "the server ended while it was measured: connection reset"
    assert [bool(figures) for figures in other.rounds] == [True, False, True]
    assert other.medians == {"rate": 1.0}
    assert found.servers["headrace"].trouble is None
    assert seen[5] != seen[2] == seen[1]


def test_a_server_that_does_not_come_up_is_told_and_the_rest_goes_on(tmp_path):
    broken = Custom(
        name="broken", doors=frozenset({Door.KAFKA}),
        command=f"{sys.executable} -c 'import sys; sys.exit(\"no {{kafka_port}} today\")'",
    )  # fmt: skip
    once = workload(once=lambda _running, _mode: Round(figures={"rate": 1.0}))
    (found,) = ran(tmp_path, [server("headrace"), broken], once)
    assert found.servers["headrace"].medians == {"rate": 1.0}
    assert found.servers["broken"].medians == {}
    assert "today" in found.servers["broken"].trouble


def test_a_server_that_never_comes_up_is_not_waited_for_in_each_round(tmp_path):
    starts = tmp_path.parent / f"{tmp_path.name}-starts"
    code = f'print(1, file=open("{starts}", "a")); 1 / 0'
    command = f"{sys.executable} -c '{code}' {{kafka_port}}"
    dying = Custom(name="dying", doors=frozenset({Door.KAFKA}), command=command)
    once = workload(once=lambda _running, _mode: Round(figures={"rate": 1.0}))
    for found in ran(tmp_path, [server("headrace"), dying], once, once):
        assert "ZeroDivisionError" in found.servers["dying"].trouble
        assert len(found.servers["dying"].rounds) == 3
    assert starts.read_text() == "1\n1\n"


def test_a_server_that_has_come_up_may_fail_to_start_again(tmp_path):
    class Moody:
        """Every second start fails, and it dies in every round."""

        name, doors, lacks, starts = "moody", frozenset({Door.KAFKA}), frozenset(), 0

        def promise(self, *_):
            return "none"

        @contextmanager
        def start(self, _folder, _mode):
            self.starts += 1
            if self.starts % 2:
                raise OSError("not now")
            child = subprocess.Popen(["true"])
            child.wait()
            yield Running(doors={}, pid=child.pid)

    moody = Moody()
    once = workload(once=lambda _running, _mode: Round(figures={"rate": 1.0}))
    ran(tmp_path, [server("headrace"), moody], once, once)
    assert moody.starts == 6


def test_cores_of_servers_leave_some_to_the_load():
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert suite.split_cores() == ({min(cores)}, {min(cores)})
    finally:
        os.sched_setaffinity(0, cores)
    with pytest.raises(InputError, match="leave none of"):
        suite.split_cores(len(cores) + 1)


def test_rows_of_one_result_do_not_go_into_another():
    before = Result(
        began="2026-11-30T12:00:00+00:00", seconds=1.0, left_out={},
        machine={"cores": 2, "commit_ms": 0.5}, settings={"rounds": 3},
        peers={
            name: {"version": version, "promises": {"mqtt": {"memory": "none"}}}
            for name, version in (("headrace", "1"), ("nats", "2"))
        },
        rows=[row({"headrace": (1.0, 0)}), row({"headrace": (2.0, 0)}, name="other")],
    )  # fmt: skip

    def differs(**now):
        return resumed.differs(before, replace(before, **now))

    assert differs(machine={"cores": 2, "commit_ms": 0.7}) is None
    assert differs(machine={"cores": 4}) == "another machine: cores was 2, and is 4"
    assert differs(settings={"rounds": 5}) == "other options: rounds was 3, and is 5"
    ours, theirs = before.peers["headrace"], before.peers["nats"]
    assert differs(peers={"headrace": ours}) == "other brokers: nats was 2, and is absent"
    assert (
        differs(
            peers={"headrace": ours, "nats": theirs | {"promises": {"mqtt": {"memory": "all"}}}}
        )
        == "other promises: nats was mqtt memory none, and is mqtt memory all"
    )
    again, new = row({"headrace": (3.0, 0)}), row({"headrace": (4.0, 0)}, name="new")
    assert resumed.merged(before.rows, again) == [again, before.rows[1]]
    assert resumed.merged(before.rows, new) == [*before.rows, new]


def test_rows_that_are_there_are_skipped_and_take_no_time(tmp_path):
    servers, load = suite.split_cores()
    plan = suite.Plan(
        workloads=[workload(seconds=10.0), workload(name="exact", door=None, seconds=7.0,
                                                   is_exact=True)],
        peers=[server("headrace"), server("other")], modes=[Mode.MEMORY], rounds=3,
        folder=tmp_path, server_cores=servers, load_cores=load,
    )  # fmt: skip
    assert suite.seconds_of(plan) == 3 * 2 * 10 + 7 + 2 * suite.START_SECONDS
    rest = replace(plan, skipped=frozenset({("it", "memory")}))
    assert [each.name for _, each, _ in suite.tasks_of(rest)] == ["exact"]
    assert suite.seconds_of(rest) == 7


def test_who_lacks_what_a_workload_needs_or_has_no_such_mode_takes_no_part(tmp_path):
    lacking = server("lacking", durable=LISTENS, lacks=frozenset({Feature.QOS_2}))
    peers = [server("headrace", durable=LISTENS), server("memory"), lacking]
    once = workload(
        modes=tuple(Mode), needs=frozenset({Feature.QOS_2}),
        once=lambda _running, mode: Round(figures={"rate": float(mode is Mode.DURABLE)}),
    )  # fmt: skip
    memory, durable = ran(tmp_path, peers, once, modes=tuple(Mode))
    assert (memory.mode, list(memory.servers)) == ("memory", ["headrace", "memory"])
    assert (durable.mode, list(durable.servers)) == ("durable", ["headrace"])


def test_what_needs_no_broker_runs_here(tmp_path):
    once = workload(door=None, once=lambda running, _mode: Round(figures={"rate": running or 7.0}))
    (found,) = ran(tmp_path, [], once)
    assert found.servers["headrace"].medians == {"rate": 7.0}


# --- brokers of a file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has sections [peer.NAME], and nothing else"),
        ("x = 1", "has sections [peer.NAME], and nothing else"),
        ("[peer.a", "at end of document"),
        ("[peer.a]", "[peer.a]: needs a command"),
        ('[peer.a]\ncommand = "b"', "[peer.a]: 'b' does not say {port}, where mqtt is to be"),
        ('[peer.a]\ncomand = "b {port}"', "unknown setting comand; did you mean 'command'?"),
        ("[peer.a]\ncommand = 1", "command must be a text; got 1"),
        ('[peer.a]\ncommand = "b {port} \'"', "No closing quotation"),
        ('[peer.a]\ncommand = "b {port}"\ndoors = ["amqp"]', "doors is a list of mqtt, kafka"),
        ('[peer.a]\ncommand = "b {port}"\ndurable = "b"', "'b' does not say {port}"),
        ('[peer.a]\ncommand = "b {port}"\nversion_command = " "', "a command is empty"),
        ('[peer.a]\ncommand = "b {port}"\nversion_command = "b \'"', "No closing quotation"),
        ('[peer."a/b"]\ncommand = "b {port}"', "a name has 1 to 32 of a-z A-Z 0-9 _ -"),
    ],
)  # fmt: skip
def test_a_section_that_makes_no_sense_is_refused_in_a_line(tmp_path, text, told):
    path = tmp_path / "peers.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        custom.read(path)
    assert str(path) in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture(name="config")
def _config(tmp_path):
    path = tmp_path / "peers.toml"
    serve = "-P -m headrace serve --mqtt 127.0.0.1:{port} --data {folder}/data"
    others = "--kafka 127.0.0.1:0 --http 127.0.0.1:0 --ws off --frame off"
    path.write_text(f"""
        [peer.mine]
        command = "{sys.executable} {serve} {others}"
        promise_memory = "nothing of note"
        version_command = "{sys.executable} -m headrace --version"

        [peer.absent]
        command = "no-such-broker {{port}}"
        install = "apt-get install no-such-broker"
    """)
    return path


def test_a_broker_that_is_not_here_is_named_with_what_installs_it(config):
    told = "there is no no-such-broker; apt-get install no-such-broker"
    found = headrace("bench", "suite", "--config", str(config), "--list", "--json")
    assert found.returncode == 0, found.stderr
    listed = json.loads(found.stdout)
    assert listed["left_out"]["absent"] == told
    assert listed["peers"]["mine"]["promises"] == {
        "mqtt": {"memory": "nothing of note", "durable": None}
    }
    assert {"ten-to-ten", "queue"} <= {each["name"] for each in listed["workloads"]}
    found = headrace("bench", "suite", "--config", str(config), "--peer", "absent")
    assert (found.returncode, found.stderr) == (1, f"headrace: absent: {told}\n")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--only", "ten-to-tenn"], "workload is called ten-to-tenn: did you mean 'ten-to-ten'?"),
        (["--peer", "mosquito"], "no broker is called mosquito: did you mean 'mosquitto'?"),
        (["--rounds", "2"], "2 is not in the range"),
        (["--only", "queue", "--mode", "memory"], "none of these workloads is measured in memory"),
        (["--save", "/nowhere/at/all.json"], "/nowhere/at is no folder in which"),
        (["--resume", "absent.json"], "absent.json: No such file or directory"),
        (["--resume", __file__], "is cut, or no JSON"),
        (["--server-cores", "1000"], "leave none of"),
    ],
)  # fmt: skip
def test_wrong_use_is_told_before_anything_starts(args, told):
    found = headrace("bench", "suite", *args)
    assert found.returncode == 2
    assert told in found.stderr


# --- whole runs -----------------------------------------------------------------------------------

TINY = ["--quick", "--only", "ten-to-ten", "--duration", "200ms"]


@pytest.mark.slow
def test_brokers_are_measured_side_by_side(config, tmp_path):
    args = [*TINY, "--config", str(config), "--peer", "mine"]
    if shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin"):
        args += ["--peer", "mosquitto"]
    saved = tmp_path / "saved.json"
    found = headrace("bench", "suite", *args, "--save", str(saved), "--json")
    assert found.returncode == 0, found.stderr
    estimate, written = found.stderr.splitlines()
    assert estimate == "2 rows to measure: about 1 minute"
    assert written == f"written: {saved}"
    result = json.loads(found.stdout)
    assert json.loads(saved.read_text()) == result
    assert result["machine"]["commit_ms"] > 0
    memory, durable = result["rows"]
    assert (memory["mode"], durable["mode"]) == ("memory", "durable")
    assert "mine" not in durable["servers"]
    assert memory["ratios"]["mine"] > 0
    assert set(memory["ratios"]) | {"headrace"} == set(memory["servers"])
    for row in result["rows"]:
        for measured in row["servers"].values():
            assert measured["trouble"] is None
            assert len(measured["rounds"]) == 3
            assert measured["medians"]["delivered_per_second"] > 0
            assert measured["medians"]["cpu_seconds_per_million"] > 0
    assert durable["servers"]["headrace"]["medians"]["messages_per_commit"] >= 1

    args = [*args, "--resume", str(saved), "--mode", "memory", "--json"]
    found = headrace("bench", "suite", *args, "--rounds", "5")
    assert found.returncode == 1
    told = f"headrace: {saved} is of other options: rounds was 3, and is 5; --save begins another"
    assert found.stderr == f"{told} file\n"
    found = headrace("bench", "suite", *args)
    again = json.loads(found.stdout)
    assert json.loads(saved.read_text()) == again
    assert [len(again["resumed"]), again["rows"][1]] == [1, durable]
    assert again["rows"][0]["began"] > memory["began"]
    assert again["seconds"] > result["seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_ends_a_suite_finds_nothing_left_of_it(tmp_path, number):
    args = [*TINY[:-1], "1h", "--peer", "headrace", "--mode", "memory", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "headrace", "bench", "suite", *args]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
    is_of_nohup = number == signal.SIGTERM
    if is_of_nohup:
        command = ["nohup", *command]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: list(tmp_path.glob("*/data/headrace.lock")))
        (lock,) = tmp_path.glob("*/data/headrace.lock")
        wait_for(lock.read_text)
        server = int(lock.read_text())
        if is_of_nohup:
            running.send_signal(signal.SIGHUP)
        running.send_signal(number)
        _, told = running.communicate(timeout=60)
    assert running.returncode == (1 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{server}").exists()


@pytest.mark.slow
def test_a_table_names_ratios_and_promises(config):
    args = ["--config", str(config), "--peer", "mine", "--mode", "memory"]
    found = headrace("bench", "suite", *TINY, *args)
    assert found.returncode == 0, found.stderr
    assert "ten-to-ten, memory" in found.stdout
    assert "mine 0." in found.stdout or "mine 1." in found.stdout
    assert "nothing of note" in found.stdout
    assert "1 row; headrace is behind in" in found.stdout


@pytest.mark.soak
def test_quick_measures_all_its_rows():
    listed = json.loads(headrace("bench", "suite", "--quick", "--list", "--json").stdout)
    found = headrace("bench", "suite", "--quick", "--json", timeout=SOAK_SECONDS)
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)["rows"]
    places = {(each["name"], mode) for each in listed["workloads"] for mode in each["modes"]}
    assert {(row["workload"], row["mode"]) for row in rows} == places
    for row in rows:
        # Where the machine has other things to do a round may fail, which is told; a row may not.
        told = {name: measured["trouble"] for name, measured in row["servers"].items()}
        figures = {
            name: measured["medians"].get(row["figure"])
            for name, measured in row["servers"].items()
        }
        assert all(figures.values()), (row["workload"], row["mode"], figures, told)
        assert set(row["ratios"]) == set(row["servers"]) - {"headrace"}
