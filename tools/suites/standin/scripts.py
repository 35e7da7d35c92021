"""The scripts of a Kafka distribution as kafka-python's tests call them, with headrace behind them.

    scripts.py kafka-run-class.sh kafka.Kafka FILE.properties

What the scripts must know of each other lies in the folder above `LOG_DIR`, which is that of one
broker: its users, and its HTTP address while it runs.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from broker import started
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

FOLDER = Path(os.environ.get("LOG_DIR", ".")).parent
USERS, URL = FOLDER / "headrace-users.json", FOLDER / "headrace-url"


def properties(file: str) -> dict[str, str]:
    """Of Kafka's settings those with a value."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """What headrace calls these settings of Kafka."""
    protocol, address = kafka["listeners"].split(",")[0].split("://")
    _, _, port = address.rpartition(":")
    values = {
        "BIND": f"127.0.0.1:{port}",
        "NUM_PARTITIONS": kafka["num.partitions"],
        "GROUP_MIN_SESSION_TIMEOUT": f"{kafka['group.min.session.timeout.ms']}ms",
        "GROUP_INITIAL_REBALANCE_DELAY": f"{kafka['group.initial.rebalance.delay.ms']}ms",
    }
    if protocol.endswith("SSL"):
        values["TLS_CERTIFICATE"] = str(certificate(kafka))
    return {f"HEADRACE_KAFKA__{name}": value for name, value in values.items()}


def certificate(kafka: Mapping[str, str]) -> Path:
    """The key store that the suite has made, as PEM."""
    store = Path(kafka["ssl.keystore.location"])
    password = kafka["ssl.keystore.password"].encode()
    key, leaf, others = pkcs12.load_key_and_certificates(store.read_bytes(), password)
    assert key is not None
    assert leaf is not None
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [each.public_bytes(Encoding.PEM) for each in (leaf, *others)]
    file = store.with_suffix(".pem")
    file.write_bytes(b"".join(parts))
    return file


def known_users(kafka: Mapping[str, str]) -> dict[str, str]:
    """Name and password of each user; nobody where there is no SASL."""
    if "sasl.enabled.mechanisms" not in kafka:
        return {}
    # Users of PLAIN stand in Kafka's own login, those of SCRAM were added.
    text = (FOLDER / "kafka_server_jaas.conf").read_text(encoding="utf-8")
    users = dict(re.findall(r'user_(\w+)="([^"]*)"', text))
    if USERS.exists():
        users |= json.loads(USERS.read_text(encoding="utf-8"))
    USERS.write_text(json.dumps(users), encoding="utf-8")
    return users


def serve(file: str) -> None:
    """Serves until it is terminated, and says what the suite waits for in Kafka's log."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    kafka = properties(file)
    users = known_users(kafka)
    with started(settings(kafka), users=users) as node:
        URL.write_text(node.url, encoding="utf-8")
        number = kafka.get("broker.id") or kafka["node.id"]
        print(f"[Kafka Server id={number}] started", flush=True)
        for name in users:
            print(f"Removing Produce quota for user {name}", flush=True)
        signal.pause()


def topics(*arguments: str) -> None:
    """`kafka-topics.sh`: `--list`, and `--create` with a number of partitions."""
    command = [sys.executable, "-m", "headrace", "streams"]
    environment = {**os.environ, "HEADRACE_URL": URL.read_text(encoding="utf-8")}
    if USERS.exists():
        name, password = next(iter(json.loads(USERS.read_text(encoding="utf-8")).items()))
        environment["HEADRACE_URL"] = environment["HEADRACE_URL"].replace("//", f"//{name}@")
        environment["HEADRACE_PASSWORD"] = password
    if "--list" in arguments:
        told = subprocess.run(
            [*command, "list", "--json"], check=True, env=environment, stdout=subprocess.PIPE
        )
        print("\n".join(each["name"] for each in json.loads(told.stdout)["streams"]))
        return
    options = dict(pairwise(arguments))
    create = ["create", options["--topic"], "--partitions", options["--partitions"]]
    subprocess.run([*command, *create, "--json"], check=True, env=environment)


def configs(*arguments: str) -> None:
    """`kafka-configs.sh` and `kafka-storage.sh` as far as they add users of SCRAM."""
    text = " ".join(arguments)
    named = re.search(r"--entity-name (\S+)", text) or re.search(r"name=([^,\]]*)", text)
    password = re.search(r"password=([^,\]]*)", text)
    if named and password:
        USERS.write_text(json.dumps({named[1]: password[1]}), encoding="utf-8")


def main(script: str, *arguments: str) -> None:
    """What one script does. A ZooKeeper only has to be there."""
    match script:
        case "kafka-run-class.sh" if arguments[0] == "kafka.Kafka":
            serve(arguments[1])
        case "kafka-run-class.sh":
            print("binding to port", flush=True)
            signal.pause()
        case "kafka-topics.sh":
            topics(*arguments)
        case "kafka-configs.sh" | "kafka-storage.sh":
            configs(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
