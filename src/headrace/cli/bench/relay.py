"""`headrace bench relay`: what brokers are held against, as a process of its own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from headrace import native
from headrace.cli.bench.show import ADDRESS
from headrace.errors import InputError

if TYPE_CHECKING:
    from headrace.model import Address


@click.command(hidden=True)
@click.option("--mqtt", type=ADDRESS, default="127.0.0.1:0", show_default=True, help="Door.")
@click.option("--drop-every", type=click.IntRange(0), default=0, help="Loses each such message.")
def relay(*, mqtt: Address, drop_every: int) -> None:
    """Carry QoS 0 messages from each publisher to its subscriber, and nothing more.

    For `headrace bench mqtt` with as many publishers as subscribers: what a broker takes beyond
    that is its own. One line on stdout says where it listens; SIGTERM or SIGINT ends it.
    """
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    try:
        running = native.MqttRelay(str(mqtt), drop_every=drop_every)
    except OSError as error:
        raise InputError(f"cannot listen at {mqtt}: {error}") from None
    except ValueError:
        raise InputError(f"{mqtt.host} is no address; give one in numbers") from None
    click.echo(f"relay: mqtt {running.address}")
    signal.sigwait(stop)
    running.stop()
