"""MQTT.js, the client of browsers and Node.js, makes its round trip."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parent / "clients"


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_mqttjs_subscribes_publishes_and_receives(broker, version: int, qos: int) -> None:
    node = shutil.which("node")
    assert node, "install nodejs"
    assert (CLIENTS / "node_modules" / "mqtt").is_dir(), "run `npm install` in tests/clients"
    topic = f"js/{version}/{qos}"
    arguments = [f"mqtt://127.0.0.1:{broker.mqtt}", str(version), str(qos), topic, "21.5 °C"]
    done = subprocess.run(
        [node, str(CLIENTS / "mqttjs_round_trip.js"), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "granted": [qos],
        "acknowledged": 0 if qos else None,
        "topic": topic,
        "payload": "21.5 °C",
        "qos": qos,
        "contentType": "text/plain" if version == 5 else None,
        "unit": "C" if version == 5 else None,
    }
