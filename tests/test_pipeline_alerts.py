"""Alerts: retained while they are open, each change published once, over crashes and absences."""

import json
import queue

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from buckets import Tables
from conftest import wait_for
from frames import at, wide
from headrace.pipeline import tables
from headrace.pipeline.alerts import Change, changed, missed, topic_of
from headrace.pipeline.announce import Announcer
from pahoclient import leave

TOPIC = "alerts/xid/node-1/GPU-1"


def row(kind="xid", uuid="GPU-1", start=1_000_000, end=None, **more):
    given = {
        "id": f"{kind}/{uuid}/{start}", "kind": kind, "severity": "critical", "uuid": uuid,
        "gpu_i_id": "", "host": "node-1", "gpu_index": 0, "model": "H200", "namespace": "",
        "pod": "", "container": "", "text": "a sentence", "evidence": {"code": 79.0},
        "start_us": start, "end_us": end,
    }  # fmt: skip
    return given | more


def states(changes):
    return [(change.topic, change.state) for change in changes]


def test_an_alert_opens_once_and_ends_once():
    known, changes = changed({}, [row()], "q")
    assert states(changes) == [(TOPIC, "open")]
    said = json.loads(changes[0].payload)
    assert (said["state"], said["start"], said["end"], said["query"]) == (
        "open", "1970-01-01T00:00:01.000+00:00", None, "q",
    )  # fmt: skip
    assert said["evidence"] == {"code": 79.0}
    same, changes = changed(known, [row()], "q")
    assert (same, changes) == (known, [])
    none, changes = changed(known, [row(end=2_000_000)], "q")
    assert (none, states(changes)) == ({}, [(TOPIC, "resolved")])
    assert json.loads(changes[0].payload)["end"] == "1970-01-01T00:00:02.000+00:00"
    assert changed({}, [row(end=2_000_000)], "q") == ({}, []), "too short to have been open"


def test_late_readings_move_a_start_or_take_an_alert_back():
    known, _ = changed({}, [row()], "q")
    assert changed(known, [row(start=500_000)], "q") == (known, [])
    none, changes = changed(known, [row(start=500_000, end=2_000_000)], "q")
    assert (none, states(changes)) == ({}, [(TOPIC, "resolved")])
    assert json.loads(changes[0].payload)["end"] == "1970-01-01T00:00:02.000+00:00"
    earlier = [row(start=100_000, end=900_000), row(gpu_i_id="1", id="a", end=2_000_000)]
    assert states(changed(known, earlier, "q")[1]) == [(TOPIC, "withdrawn")], "those are others"
    none, changes = changed(known, [], "q")
    assert (none, states(changes)) == ({}, [(TOPIC, "withdrawn")])
    assert json.loads(changes[0].payload)["state"] == "withdrawn"


def test_what_ends_and_begins_again_is_two_changes():
    known, _ = changed({}, [row()], "q")
    again, changes = changed(known, [row(end=2_000_000), row(start=9_000_000)], "q")
    assert states(changes) == [(TOPIC, "resolved"), (TOPIC, "open")]
    assert json.loads(again[TOPIC])["id"] == "xid/GPU-1/9000000"


def test_information_is_no_alert_and_names_are_levels():
    assert changed({}, [row(severity="info")], "q") == ({}, [])
    assert topic_of(row(host="a/b+c", uuid=None)) == "alerts/xid/a_b_c/_"


def test_slices_of_a_gpu_share_a_topic():
    two = [row(gpu_i_id="2", id="b", start=2), row(gpu_i_id="1", id="a", start=1)]
    known, changes = changed({}, two, "q")
    assert [json.loads(payload)["gpu_i_id"] for payload in known.values()] == ["1"]
    assert len(changes) == 1


def test_what_a_crash_left_unsaid_is_found_from_what_is_retained():
    one, [opened] = changed({}, [row()], "q")
    assert missed(one, {}, [opened]) == [opened]
    assert missed(one, one, [opened]) == []
    _, [closed] = changed(one, [row(end=2_000_000)], "q")
    assert missed({}, one, [closed]) == [closed]
    assert missed({}, {}, [closed]) == [], "cleared, so perhaps said"
    [gone] = missed({}, one, [])
    assert (gone.state, json.loads(gone.payload)["state"]) == ("resolved", "resolved")
    two, changes = changed(one, [row(end=2_000_000), row(start=9_000_000)], "q")
    assert missed(two, one, changes) == changes
    assert isinstance(changes[0], Change)
    assert missed(two, None, changes) == changes, "where it tells nobody what it holds"
    assert missed({}, None, [closed]) == [closed]


class Listener:
    """A subscriber of all alerts."""

    def __init__(self, port):
        self._heard = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self._heard.put(
            (message.topic, message.retain, message.payload.decode())
        )
        subscribed = queue.Queue()
        self.client.on_subscribe = lambda *_: subscribed.put("yes")
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe("alerts/#", 1)
        assert subscribed.get(timeout=30)

    def next(self):
        """Topic, whether retained, and state or empty, of the next message."""
        topic, retained, payload = self._heard.get(timeout=30)
        return topic, retained, payload and json.loads(payload)["state"]

    def heard_all(self):
        """That nothing else came before a message of our own."""
        self.client.publish("alerts/end", '{"state": "end"}', 1)
        return self.next() == ("alerts/end", False, "end")

    def close(self):
        leave(self.client)


def scrape(seconds, code):
    values = {"DCGM_FI_DEV_XID_ERRORS": str(code), "DCGM_FI_DEV_POWER_USAGE": "100"}
    return [wide(values, event_time=at(seconds))]


@pytest.fixture
def fleet(tmp_path):
    """Tables in which a fault has opened, and what ends it."""
    written = Tables(tmp_path / "tables", buckets=1)
    written.write(scrape(0, 0))
    return written


def raised(fleet):
    return fleet.write(scrape(10, 79))


def cleared(fleet):
    for seconds in range(20, 2000, 60):
        after = fleet.write(scrape(seconds, 79))
        if any(change.state == "resolved" for change in after.changes):
            return after
    raise AssertionError("the fault never ended")


@pytest.fixture
def troubles():
    return []


def announcer(fleet, node, troubles):
    return Announcer(fleet.root, f"127.0.0.1:{node.mqtt}", None, troubles.append)


def test_an_alert_is_retained_while_it_is_open(fleet, broker, troubles):
    listener = Listener(broker.mqtt)
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
        said.told(raised(fleet))
        assert listener.next() == (TOPIC, False, "open")
        late = Listener(broker.mqtt)
        assert late.next() == (TOPIC, True, "open")
        late.close()
        said.told(fleet.write(scrape(15, 79)))
        said.told(cleared(fleet))
        assert listener.next() == (TOPIC, False, "")
        assert listener.next() == (TOPIC, False, "resolved")
    assert listener.heard_all()
    listener.close()
    assert Listener(broker.mqtt).heard_all(), "nothing is retained"
    assert troubles == []


def test_a_new_process_says_what_the_last_one_did_not(fleet, broker, troubles):
    raised(fleet)  # and its process was killed before it said so
    listener = Listener(broker.mqtt)
    for _ in range(2):
        with announcer(fleet, broker, troubles) as said:
            said.told(tables.manifest(fleet.root))
    assert listener.next() == (TOPIC, False, "open")
    assert listener.heard_all(), "once"
    (fleet.root / "_manifest" / "alerts").unlink()  # killed before it knew that all was said
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
    assert listener.heard_all(), "the broker holds it already"
    cleared(fleet)
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
    assert [listener.next() for _ in range(2)] == [(TOPIC, False, ""), (TOPIC, False, "resolved")]
    assert listener.heard_all()
    listener.close()


def test_a_broker_that_never_heard_of_an_open_alert_is_told(
    tmp_path, fleet, broker, start_node, troubles
):
    raised(fleet)
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
    other = start_node(data=tmp_path / "another")
    listener = Listener(other.mqtt)
    for _ in range(2):
        with announcer(fleet, other, troubles) as said:
            said.told(tables.manifest(fleet.root))
    assert listener.next() == (TOPIC, False, "open")
    assert listener.heard_all(), "once"
    listener.close()
    assert troubles == []


def test_what_others_retain_among_alerts_ends_nothing(fleet, broker, troubles):
    raised(fleet)
    listener = Listener(broker.mqtt)
    for at_topic, text in enumerate(['{"query": "q"}', '{"query": "q", "id": 7}', "[" * 100_000]):
        listener.client.publish(f"alerts/{at_topic}", text, 1, retain=True).wait_for_publish(30)
        listener._heard.get(timeout=30)
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
    assert listener.next() == (TOPIC, False, "open")
    assert listener.heard_all()
    listener.close()
    assert troubles == []


SILENT = """
[access]
anonymous = true
no_match = "allow"
[[access.rules]]
deny = ["subscribe"]
clients = ["headrace-alerts-*"]
"""


@pytest.fixture
def silent(start_node, tmp_path):
    """A broker that tells the pipeline nothing of what it retains."""
    file = tmp_path / "headrace.toml"
    file.write_text(SILENT)
    return start_node("--config", str(file), data=tmp_path / "silent")


def scrape_of(uuid, seconds, code):
    values = {"DCGM_FI_DEV_XID_ERRORS": str(code), "DCGM_FI_DEV_POWER_USAGE": "100"}
    return wide(values, event_time=at(seconds), gpu_id=uuid)


def test_what_nobody_may_read_back_is_said_by_the_mark(tmp_path, silent, troubles):
    """Two alerts are open, and one ends; the process is killed before it says so."""
    fleet = Tables(tmp_path / "tables", buckets=1)
    fleet.write([scrape_of(uuid, 0, 0) for uuid in ("GPU-1", "GPU-2")])
    with announcer(fleet, silent, troubles) as said:
        said.told(tables.manifest(fleet.root))
        said.told(fleet.write([scrape_of(uuid, 10, 79) for uuid in ("GPU-1", "GPU-2")]))
    listener = Listener(silent.mqtt)
    assert sorted(listener.next() for _ in range(2)) == [
        (f"alerts/xid/node-1/GPU-{gpu}", True, "open") for gpu in (1, 2)
    ]
    for seconds in range(20, 2000, 60):
        after = fleet.write([scrape_of("GPU-1", seconds, 79), scrape_of("GPU-2", seconds, seconds)])
        if after.changes[0].state == "resolved":
            break
    for _ in range(2):
        with announcer(fleet, silent, troubles) as said:
            said.told(tables.manifest(fleet.root))
    assert [listener.next() for _ in range(2)] == [(TOPIC, False, ""), (TOPIC, False, "resolved")]
    assert listener.heard_all(), "once, and nothing of the alert that goes on"
    (fleet.root / "_manifest" / "alerts").unlink()  # as where several versions were left unsaid
    with announcer(fleet, silent, troubles) as said:
        said.told(tables.manifest(fleet.root))
    assert [listener.next() for _ in range(3)] == [
        (TOPIC, False, ""), (TOPIC, False, "resolved"),
        ("alerts/xid/node-1/GPU-2", False, "open"),
    ]  # fmt: skip
    assert listener.heard_all()
    listener.close()
    assert "lets nobody read what alerts it holds" in troubles[0]


def test_a_broker_that_is_away_hears_it_when_it_is_back(fleet, broker, start_node, troubles):
    broker.kill()
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
        said.told(raised(fleet))
        wait_for(lambda: troubles)
        again = start_node.again(broker)
        wait_for((fleet.root / "_manifest" / "alerts").exists)
        listener = Listener(again.mqtt)
        assert listener.next() == (TOPIC, True, "open")
        assert listener.heard_all()
        listener.close()
    assert len(troubles) == 1
    assert "no broker answers at 127.0.0.1" in troubles[0]


def test_the_end_does_not_wait_for_a_broker_that_stays_away(fleet, broker, troubles, monkeypatch):
    monkeypatch.setattr("headrace.job_limits.PIPELINE_ALERTS_CLOSE_SECONDS", 0.5)
    broker.kill()
    with announcer(fleet, broker, troubles) as said:
        said.told(tables.manifest(fleet.root))
        said.told(raised(fleet))
    assert "did not take all; the next run says what it lacks then" in troubles[-1]


def test_a_connection_that_breaks_between_two_alerts_loses_neither(
    tmp_path, broker, start_node, troubles
):
    fleet = Tables(tmp_path / "tables", buckets=1)
    both = ("GPU-1", "GPU-2")
    for seconds, code in ((0, 0), (10, 79)):
        fleet.write(
            [
                wide(
                    {"DCGM_FI_DEV_XID_ERRORS": str(code), "DCGM_FI_DEV_POWER_USAGE": "100"},
                    gpu_id=uuid, event_time=at(seconds),
                )
                for uuid in both
            ]
        )  # fmt: skip
    said = announcer(fleet, broker, troubles)
    publish, published = said._connection.publish, []

    def breaking(*args, **more):
        packet_id = publish(*args, **more)
        if not published:
            broker.kill()
        published.append(args[0])
        return packet_id

    said._connection.publish = breaking
    with said:
        said.told(tables.manifest(fleet.root))
        wait_for(lambda: troubles)
        again = start_node.again(broker)
        wait_for((fleet.root / "_manifest" / "alerts").exists)
    listener = Listener(again.mqtt)
    heard = sorted(listener.next() for _ in both)
    assert heard == [(f"alerts/xid/node-1/{uuid}", True, "open") for uuid in both]
    assert listener.heard_all()
    listener.close()
    assert len(published) == 2
