"""docs/http.md and docs/metrics.md are what a node does."""

import re
import runpy
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.adapters import (
    http,
    http_access,
    http_clients,
    http_groups,
    http_queue_messages,
    http_queues,
    http_streams,
    http_telemetry,
    http_trace,
)
from kafkaraw import RawConnection, batch
from rawclient import RawMqtt
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "http.md"
METRICS = runpy.run_path(str(ROOT / "tools" / "metrics.py"))
EXPECTED = [
    (),
    ('"status": "ok"', '"status": "ready"'),
    ("headrace_log_rounds_total",),
    ('"retention.ms": {"value": 2592000000, "source": "stream"}',),
    ('"retention.ms": {"value": 604800000, "source": "default"}',),
    ('{"changed": [], "restart": []}',),
    ('{"stored": 1}', '{"deleted": "rooms"}'),
    ('"client": "pump-1"', '"queued_messages": 1', '"filter": "rooms/+"'),
    ('{"deleted": "pump-1"}',),
    ('"depth": 0', '"source": "stream"', '"in_flight": 0', '{"deleted": "orders"}'),
    (
        '{"enqueued": 2}',
        '"message_id": "0:0:1"',
        '"result": "settled"',
        '"state": "in flight"',
        '"state": "resting"',
        '{"deleted": "mails"}',
    ),
    ('"executed": true', '"group": "billing", "state": "Empty"', '"committed": 0, "end": 0'),
    ('{"deleted": "billing"}',),
    ('"payload": "21.5"', '{"count": 2}', '{"deleted": 2}'),
    ('"event": "in"', '"topic": "rooms/3"', '"payload": "18"'),
    (),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_http_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_page_has_every_route_and_every_field_and_no_others() -> None:
    page = PAGE.read_text()
    parts = (
        http, http_access, http_clients, http_groups, http_queue_messages, http_queues,
        http_streams, http_telemetry, http_trace,
    )  # fmt: skip
    code = "".join(Path(each.__file__).read_text() for each in parts)
    routes = re.findall(r'web\.(\w+)\("(/[^"]*)", self\.', code)
    told = re.findall(r"^## `([A-Z]+) (/\S*)`$", page, re.MULTILINE)
    assert sorted(told) == sorted((method.upper(), path) for method, path in routes)
    bodies = {
        "POST /api/v1/streams": http_streams._NewStreamBody,
        "POST /api/v1/queues": http_queues._NewQueueBody,
        "POST /api/v1/publish": http._PublishBody,
        "POST /api/v1/queues/{name}/messages": http_queue_messages._EnqueueBody,
        "POST /api/v1/queues/{name}/pull": http_queue_messages._PullBody,
        "POST /api/v1/queues/{name}/ack": http_queue_messages._SettleBody,
        "GET /api/v1/queues/{name}/messages": http_queue_messages._PeekQuery,
        "POST /api/v1/users": http_access._NewUserBody,
        "PATCH /api/v1/users/{name}": http_access._UserBody,
        "GET /api/v1/sessions": http_clients._SessionsQuery,
        "GET /api/v1/retained": http_clients._RetainedQuery,
        "GET /api/v1/groups": http_groups._ListQuery,
        "POST /api/v1/groups/{group}/reset": http_groups._ResetBody,
        "GET /api/v1/trace": http_trace._TraceQuery,
    }
    for route, body in bodies.items():
        section = page.partition(f"## `{route}`\n")[2].partition("\n## ")[0]
        names = [field.alias or name for name, field in body.model_fields.items()]
        told = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
        assert told == sorted(names, key=lambda name: section.index(f"| `{name}`"))


def test_the_metrics_page_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == METRICS["render"](), "run `make docs`"


def test_every_metric_of_a_node_is_on_the_page_with_its_text_and_labels(broker) -> None:
    broker.create_stream("a", filters=["a"], settings={"cleanup.policy": "compact"})
    with RawMqtt(broker.mqtt, "c") as client, RawConnection(broker) as raw:
        client.publish("a", b"x", 1)
        assert client.puback() == 1
        raw.produce("a", batch(b"keyless"))
    text = broker.call("GET", "/metrics")[1]
    helps = dict(re.findall(r"^# HELP headrace_(\S+) ?(.*)$", text, re.MULTILINE))
    labels = {
        name: set(re.findall(r'(\w+)="', inside))
        for name, inside in re.findall(r"^headrace_(\w+?)(?:_bucket)?\{(.*)\} ", text, re.MULTILINE)
    }
    told = {each.name: each for each in METRICS["metrics"]()}
    own = {
        name: help_
        for name, help_ in helps.items()
        if name in told or not name.startswith("process_")
    }
    unknown = [name for name, text in own.items() if name not in told or text != told[name].text]
    assert not unknown, "explain these in src/headrace/node/meanings.py, and run `make docs`"
    silent = {name for name, each in told.items() if not each.labels} - own.keys()
    assert not silent, "no node has these"
    for name in labels.keys() & told.keys() - {"log_append_seconds", "loop_lag_seconds"}:
        assert labels[name] == set(told[name].labels)
