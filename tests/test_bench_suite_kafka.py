"""Kafka's rows of `headrace bench suite`: their loads, and how Apache Kafka is found."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.bench.kafka import FAULTS, Load
from headrace.bench.kafka.readers import Outlook
from headrace.bench.suite import kafka_workloads as kw
from headrace.bench.suite.peers import kafka as peer
from headrace.bench.suite.peers.peer import Door, LeftOutError, Mode, Running
from headrace.bench.suite.workloads import Timing
from headrace.errors import InputError, StartError
from headrace.model import Address

POM = Path(__file__).parents[1] / "benchmarks" / "peers" / "kafka.xml"
SHORT = {"warm_up": 0.1, "duration": 0.3, "drain": 2.0}


@pytest.fixture(name="no_kafka")
def _no_kafka(monkeypatch, tmp_path):
    """A machine without Apache Kafka."""
    monkeypatch.delenv(peer.JARS_VARIABLE, raising=False)
    monkeypatch.delenv(peer.HOME_VARIABLE, raising=False)
    monkeypatch.setattr(peer, "FOLDERS", (str(tmp_path / "nowhere"),))


# --- the peer -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_kafka")
def test_who_has_no_jars_hears_where_they_were_looked_for_and_what_brings_them(tmp_path):
    with pytest.raises(LeftOutError, match=f"no kafka_2.13-VERSION.jar is in {tmp_path}"):
        peer.Kafka().version()
    assert peer.Kafka().install == "mvn -f benchmarks/peers/kafka.xml dependency:copy-dependencies"
    assert POM.exists()


def test_the_command_puts_jars_where_they_are_looked_for_first():
    (folder,) = (each.text for each in ET.parse(POM).iter() if each.tag.endswith("outputDirectory"))
    assert folder.replace("${user.home}", "~") == peer.FOLDERS[0]


@pytest.mark.usefixtures("no_kafka")
def test_jars_are_found_where_a_variable_says(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "jars"
    for place, version in [(home / "libs", "3.9.1"), (folder, "4.1.1")]:
        place.mkdir(parents=True)
        (place / f"kafka_2.13-{version}.jar").touch()
        (place / f"kafka-clients-{version}.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(home))
    assert peer.jars() == (home / "libs", "3.9.1")
    monkeypatch.setenv("HEADRACE_BENCH_KAFKA_JARS", str(folder))
    assert peer.jars() == (folder, "4.1.1")


@pytest.mark.slow
@pytest.mark.usefixtures("no_kafka")
def test_jars_that_start_nothing_are_told_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "kafka_2.13-4.1.1.jar").touch()
    monkeypatch.setenv("HEADRACE_BENCH_KAFKA_JARS", str(tmp_path))
    with pytest.raises(StartError, match=r"kafka: .*StorageTool") as told:
        peer.Kafka().start(tmp_path, Mode.MEMORY).__enter__()
    assert "\n" not in str(told.value)


def test_it_says_what_it_promises():
    assert "page cache" in peer.Kafka().promise(Door.KAFKA, Mode.MEMORY)
    assert "synced before" in peer.Kafka().promise(Door.KAFKA, Mode.DURABLE)
    assert peer.Kafka().promise(Door.MQTT, Mode.MEMORY) is None


# --- loads --------------------------------------------------------------------------------------


def test_every_row_has_a_load_that_makes_sense():
    rows = kw.kafka_workloads(Timing())
    names = [each.name for each in rows]
    assert len(set(names)) == len(names)
    for each in rows:
        shape = each.once.shape if isinstance(each.once, kw.AtHalf) else each.once
        shape.load.check()
        assert each.bounds == {"kafka": 1.0}
        assert each.modes == (Mode.MEMORY, Mode.DURABLE)
        assert not each.is_quick, "--quick has nobody beside headrace"


def test_records_and_partitions_are_shared_out_without_a_rest():
    load = Load(records=10, producers=4, partitions=7, readers=3)
    assert [load.share(index) for index in range(4)] == [3, 3, 2, 2]
    assert sorted(p for reader in range(3) for p in load.partitions_of(reader)) == [*range(7)]
    assert Load().share(0) is None


def test_a_reader_owes_what_came_to_its_partitions():
    load = Load(partitions=3, producers=2, readers=2)
    outlook = Outlook([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7])
    first, second = (outlook.of(load.partitions_of(reader), load) for reader in range(2))
    assert first == Outlook([1, 0, 3, 4, 0, 6], [2, 0, 4, 5, 0, 7])
    assert second == Outlook([0, 2, 0, 0, 5, 0], [0, 3, 0, 0, 6, 0])
    assert outlook.of(range(3), load) is outlook


def test_a_flow_is_of_a_partition_or_of_a_key():
    assert Load(partitions=3, producers=2).flows == 6
    assert Load(partitions=3, producers=2, keys=100).flows == 200
    for load, words in [
        (Load(readers=2), "2 readers need as many partitions"),
        (Load(readers=2, partitions=2, keys=5), "use one reader"),
        (Load(producers=64, keys=1 << 20), "16,777,216"),
    ]:
        with pytest.raises(InputError, match=words):
            load.check()


def test_who_could_read_nothing_does_not_say_that_all_is_lost():
    figures = {"acknowledged": 5, "received": 0, "lost": 5}
    assert kw.missing(figures) == "nothing could be read"
    assert kw.missing(figures | {"received": 4, "lost": 1}) is None
    kept = {"acknowledged": 5, "received": 5, "lost": 0, "trimmed": 0}
    assert kw.missing(kept) == "retention did not begin"
    assert kw.missing(kept | {"trimmed": 2, "received": 3}) is None


# --- rounds -------------------------------------------------------------------------------------


def of(node):
    return Running({Door.KAFKA: Address("127.0.0.1", node.kafka)}, node.process.pid)


def assert_whole(done, *, read="acknowledged"):
    assert done.trouble is None
    assert [done.figures[name] for name in FAULTS if name in done.figures] == [0] * 4
    assert done.figures["received"] == done.figures[read] > 0
    assert done.figures["records_per_second"] > 0


@pytest.mark.slow
@pytest.mark.clients
def test_a_round_counts_what_several_read_while_several_send(shared):
    load = Load(partitions=5, producers=2, readers=2, **SHORT)
    done = kw.Shape("together", load)(of(shared), Mode.DURABLE)
    assert_whole(done)
    assert done.figures["cpu_seconds_per_million"] > 0
    assert done.figures["resident_bytes"] > 0


@pytest.mark.slow
@pytest.mark.clients
def test_a_round_judges_order_by_key_and_sends_so_many(shared):
    load = Load(partitions=3, keys=50, records=20_001, producers=2, **SHORT)
    done = kw.Shape("produce", load, kw.OWN)(of(shared), Mode.DURABLE)
    assert_whole(done)
    assert done.figures["sent"] == 20_001


@pytest.mark.slow
@pytest.mark.clients
def test_what_retention_took_is_not_lost(start_node):
    node = start_node(HEADRACE_LOG__RETENTION_CHECK="20ms")
    configs = {"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 18)}
    load = Load(payload=1024, configs=configs, records=20_000, **SHORT)
    done = kw.Shape("produce", load)(of(node), Mode.DURABLE)
    assert done.trouble is None
    assert done.figures["trimmed"] > 0
    assert done.figures["received"] + done.figures["trimmed"] == done.figures["acknowledged"]
    assert [done.figures[name] for name in FAULTS if name in done.figures] == [0] * 4


@pytest.mark.slow
@pytest.mark.clients
def test_latency_is_asked_for_at_half_of_the_least_that_was_shown(shared):
    half = kw.AtHalf(kw.Shape("together", Load(linger_ms=1.0, **SHORT)))
    half._least[Mode.DURABLE] = 2_000.0
    done = half(of(shared), Mode.DURABLE)
    assert_whole(done)
    assert done.figures["asked_per_second"] == 1_000
    assert 0 < done.figures["p50_ms"] <= done.figures["p99_ms"]


@pytest.mark.slow
@pytest.mark.clients
def test_a_server_that_must_warm_up_has_a_round_that_does_not_count(shared):
    def appended():
        return shared.metrics()["headrace_log_appended_bytes_total"]

    cold = replace(of(shared), warm_up_seconds=0.1)
    shape = kw.Shape("produce", Load(payload=1000, records=1000, **SHORT))
    rounds = []
    for _ in range(2):
        before = appended()
        assert_whole(shape(cold, Mode.DURABLE))
        rounds.append((appended() - before) // 1_000_000)
    assert rounds == [2, 1]
