"""Runs other projects' MQTT and Kafka suites against headrace, and compares with what is expected.

    python tools/suites paho3 ~/paho.mqtt.testing
    python tools/suites sequences ~/mosquitto --broker 127.0.0.1:1883
    python tools/suites aiokafka ~/aiokafka

Nothing of those projects is part of this one: each suite needs a copy, or an installed program,
which `--help` names. Without `--broker` a node is started on free ports with an empty folder; those
of Kafka's clients start their nodes themselves. `expected.toml` lists, suite by suite, what need
not pass, and why.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import click
from broker import RULES, Broker, started
from interoperability import paho3, paho5
from kafkaclients import aiokafka, kafka_python
from outcome import Outcome
from programs import conformance, gmqtt, rmqtt
from sequences import sequences


class Suite(NamedTuple):
    """How it runs, what a copy of it is, and the variables and tables of its node.

    `starts` where it starts nodes itself: `run` is then called without one.
    """

    run: Callable[..., list[Outcome]]
    copy: str
    settings: Mapping[str, str] = MappingProxyType({})
    tables: str = ""
    starts: bool = False


#: These suites take the other of two readings that the standard allows (MQTT 5.0, 3.3.4).
EACH = {"HEADRACE_MQTT__OVERLAPPING_SUBSCRIPTIONS": "each"}

SUITES = {
    "paho3": Suite(paho3, "a copy of eclipse-paho/paho.mqtt.testing: MQTT 3.1.1", tables=RULES),
    "paho5": Suite(paho5, "a copy of eclipse-paho/paho.mqtt.testing: MQTT 5.0", tables=RULES),
    "sequences": Suite(
        sequences, "a copy of eclipse-mosquitto/mosquitto: byte sequences, read leniently"
    ),
    "conformance": Suite(
        conformance, "the program mqtt5-conformance of LabOverWire/mqtt-lib", EACH
    ),
    "rmqtt": Suite(rmqtt, "the program mqtt_harness of rmqtt/rmqtt", EACH),
    "gmqtt": Suite(
        gmqtt,
        "the unpacked source distribution of gmqtt, which holds its tests; port 8883 must be free",
        {"HEADRACE_MQTT__TLS_BIND": "127.0.0.1:8883"},
    ),
    "kafka-python": Suite(
        kafka_python, "a copy of dpkp/kafka-python: its integration tests", starts=True
    ),
    "aiokafka": Suite(aiokafka, "a copy of aio-libs/aiokafka", starts=True),
}

EPILOG = "\b\nSUITE, and what COPY is:\n" + "\n".join(
    f"  {name:<12} {suite.copy}" for name, suite in SUITES.items()
)


def expected(suite: str) -> dict[str, str]:
    """Tests of `suite` that need not pass, with the reason."""
    text = Path(__file__).with_name("expected.toml").read_text(encoding="utf-8")
    reasons: dict[str, str] = tomllib.loads(text).get(suite, {})
    return reasons


def report(suite: str, outcomes: list[Outcome], *, as_json: bool) -> bool:
    """Prints what came out; True where nothing fails that should pass."""
    allowed = expected(suite)
    failed = [each for each in outcomes if not each.passed]
    surprises = [each for each in failed if each.test not in allowed]
    if as_json:
        value = {
            "suite": suite,
            "passed": len(outcomes) - len(failed),
            "failed": [each._asdict() for each in failed],
            "unexpected": [each.test for each in surprises],
        }
        print(json.dumps(value))
    else:
        for each in failed:
            because = allowed.get(each.test)
            print(
                f"FAIL {each.test}: {each.detail}" + (f" (expected: {because})" if because else "")
            )
        print(f"{suite}: {len(outcomes) - len(failed)} of {len(outcomes)} passed", end="")
        print(f", {len(surprises)} of the failures not expected" if failed else "")
    return bool(outcomes) and not surprises


@click.command(epilog=EPILOG)
@click.argument("suite", type=click.Choice(list(SUITES)))
@click.argument("copy", type=click.Path(exists=True, path_type=Path))
@click.option("--broker", "address", metavar="HOST:PORT", help="A running broker, of any make.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def main(suite: str, copy: Path, address: str | None, *, as_json: bool) -> None:
    """Run SUITE from COPY; exit 1 where a test fails that is expected to pass."""
    run, _, settings, tables, starts = SUITES[suite]
    if starts and address:
        raise click.UsageError(f"{suite} starts its brokers itself, with settings of its own")
    with ExitStack() as stack:
        if starts:
            brokers = []
        elif address:
            brokers = [Broker.parse(address)]
        else:
            brokers = [stack.enter_context(started(settings, tables))]
        outcomes = run(copy.resolve(), *brokers)
    if not report(suite, outcomes, as_json=as_json):
        sys.exit(1)


if __name__ == "__main__":
    main()
