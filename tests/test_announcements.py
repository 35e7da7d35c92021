"""What a node says of itself below `$SYS/broker`: the words of mosquitto, on a virtual clock."""

from collections import defaultdict

import pytest

from headrace.kernel.announcements import GAUGES, Announcements
from headrace.native import Switchboard


@pytest.fixture
def figures():
    return defaultdict(int)


def said(announcements, figures, mono_ms):
    return {
        topic.removeprefix("$SYS/broker/"): payload.decode()
        for topic, payload in announcements.due(figures, mono_ms)
    }


def test_the_first_round_says_everything_and_the_next_what_has_changed(figures):
    announcements = Announcements("headrace version 1", 5_000)
    first = said(announcements, figures, 5_000)
    assert first["version"] == "headrace version 1"
    assert first["uptime"] == "0 seconds"
    assert first["clients/total"] == "0"
    assert first["load/bytes/sent/15min"] == "0.00"
    assert set(GAUGES) <= first.keys()
    figures["mqtt_bytes_sent_total"] = 600
    later = said(announcements, figures, 15_000)
    assert later["uptime"] == "10 seconds"
    assert later["bytes/sent"] == "600"
    assert set(later) == {
        "uptime", "bytes/sent", *(f"load/bytes/sent/{each}min" for each in (1, 5, 15)),
    }  # fmt: skip


def test_clients_are_here_or_away_and_the_most_are_remembered(figures):
    announcements = Announcements("v", 0)
    figures |= {"mqtt_sessions": 5, "mqtt_sessions_away": 2}
    first = said(announcements, figures, 0)
    clients = {name: first[f"clients/{name}"] for name in ("connected", "disconnected", "maximum")}
    assert clients == {"connected": "3", "disconnected": "2", "maximum": "5"}
    figures["mqtt_sessions"] = 4
    later = said(announcements, figures, 1_000)
    assert (later["clients/connected"], "clients/maximum" in later) == ("2", False)


def test_loads_are_means_of_a_minute_that_follow_at_their_own_pace(figures):
    announcements = Announcements("v", 0)
    said(announcements, figures, 0)
    for second in range(10, 601, 10):
        figures["mqtt_messages_received_total"] += 20
        last = said(announcements, figures, second * 1000)
    assert last["load/publish/received/15min"] == "58.39"  # 120 (1 - exp(-10 / 15))
    assert announcements._loads["load/publish/received", 1] == pytest.approx(120, abs=0.01)


def test_drops_of_all_reasons_are_one_figure(figures):
    figures |= {
        'mqtt_messages_dropped_total{reason="away"}': 2,
        'mqtt_messages_dropped_total{reason="queue_full"}': 3,
    }
    assert said(Announcements("v", 0), figures, 0)["publish/messages/dropped"] == "5"


def test_a_switchboard_has_every_figure_that_is_told():
    Announcements("v", 0).due(Switchboard((1, 2)).statistics(), 0)
