"""Options of commands that publish to an MQTT door, and count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.login import login_options
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable


def _address(_context: object, _option: object, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None


mqtt_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--mqtt",
    "broker",
    callback=_address,
    metavar="HOST:PORT",
    default="127.0.0.1:1883",
    show_default=True,
    help="MQTT door of the broker.",
)


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--mqtt` and who the collector is there."""
    return mqtt_option(login_options(command))


json_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--json", "as_json", is_flag=True, help="Print the counts as one JSON object."
)
