"""`headrace bench`: arguments, progress and tables of what `headrace.bench` measures."""

import click

from headrace.cli.bench.kafka import kafka
from headrace.cli.bench.mqtt import mqtt
from headrace.cli.bench.queue import queue
from headrace.cli.bench.relay import relay
from headrace.cli.bench.spark import spark
from headrace.cli.bench.suite import suite


@click.group(short_help="Measure a broker by what it delivers.")
def bench() -> None:
    """Put load on a broker, headrace or another, and count what arrives.

    \b
    Examples:
      headrace bench mqtt
      headrace bench mqtt --mqtt 127.0.0.1:1883 --against 127.0.0.1:2883
      headrace bench kafka
      headrace bench kafka produce latency --kafka 127.0.0.1:9092 --against 127.0.0.1:9093
      headrace bench queue --stuck 2
      headrace bench spark
      headrace bench suite --quick
    """


bench.add_command(mqtt)
bench.add_command(kafka)
bench.add_command(queue)
bench.add_command(relay)
bench.add_command(spark)
bench.add_command(suite)
