"""What queues do, measured of headrace and of other brokers by the same scenarios.

    python benchmarks/peers/queues.py                        all that are installed
    python benchmarks/peers/queues.py headrace rabbitmq      these: headrace, rabbitmq, nats
    python benchmarks/peers/queues.py --rows nack,key        these rows
    python benchmarks/peers/queues.py --json                 one JSON object
    python benchmarks/peers/queues.py --markdown > docs/queues-compared.md

What it needs of other brokers stands in README.md beside it. Each broker runs on a folder of its
own that goes with it, at ports of the loopback address, as its package is configured unless that
file says otherwise.
"""

import argparse
import contextlib
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from broker import START_SECONDS, Broker, CannotBeAskedError, LeftOutError
from scenarios import KILLING, ROWS, Cell

BROKERS = {
    "headrace": ("ours", "Headrace"),
    "rabbitmq": ("rabbitmq", "RabbitMq"),
    "nats": ("jetstream", "Nats"),
}

CANNOT = "cannot be asked for"

PAGE = """# Queues of headrace and of others

Measured on {date} by `python benchmarks/peers/queues.py --markdown`, which wrote this page: every broker is started on the same machine, goes through the same scenarios, and a cell is what happened. "Cannot be asked for": the broker has nothing of the kind, or calls it as it says there. What is installed from where, and how each was configured, is in [benchmarks/peers](../benchmarks/peers/README.md). A kill is that of the process, not of the machine's power, and comes 5 s or more after the queue was made. What is settled is so after the broker's answer; an ack of AMQP 0-9-1 has none, so there what follows it on its channel was awaited. All are single nodes: that RabbitMQ and NATS replicate queues over several, and headrace does not, is no row.

{table}
{left_out}"""  # noqa: E501 - a paragraph


def measured(make: Callable[[Path], Broker], rows: list[str]) -> tuple[str, dict[str, Cell]]:
    """Every row; the broker's version."""
    shared = [row for row in rows if row not in KILLING]
    alone = [[row] for row in rows if row in KILLING]
    found: dict[str, Cell] = {}
    for together in filter(None, [shared, *alone]):
        with (
            tempfile.TemporaryDirectory(prefix="queues-", ignore_cleanup_errors=True) as folder,
            running(make(Path(folder))) as broker,
        ):
            version = broker.version()
            for row in together:
                found[row] = cell = outcome(broker, row)
                print(f"{broker.name}: {row}: {': '.join(filter(None, cell))}", file=sys.stderr)
    return version, {row: found[row] for row in rows}


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def outcome(broker: Broker, row: str) -> Cell:
    _, scenario = ROWS[row]
    try:
        return scenario(broker, f"q-{row.replace('.', '-')}")
    except CannotBeAskedError as why:
        return Cell(CANNOT, str(why))
    except TimeoutError as why:  # which says nothing about what the row asks
        return Cell("no answer", f"{why} after {START_SECONDS} s")


def table(versions: dict[str, str], cells: dict[str, dict[str, Cell]], rows: list[str]) -> str:
    """In Markdown."""
    lines = [["", *(f"{name} {version}" for name, version in versions.items())]]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        each = [cells[name][row] for name in versions]
        shown = [f"**{cell.fact}**{f': {cell.detail}' if cell.detail else ''}" for cell in each]
        lines.append([ROWS[row][0], *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("brokers", nargs="*", metavar="BROKER", help=", ".join(BROKERS))
    parser.add_argument("--rows", default=",".join(ROWS), help="with commas")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true", help="the page docs/queues-compared.md")
    options = parser.parse_args()
    rows = options.rows.split(",")
    for name, known in [*((row, ROWS) for row in rows), *((b, BROKERS) for b in options.brokers)]:
        if name not in known:
            parser.error(f"there is no {name!r}, but {', '.join(known)}")
    versions, cells, left_out = {}, {}, {}
    for name in options.brokers or BROKERS:
        module, kind = BROKERS[name]
        try:
            make = getattr(importlib.import_module(module), kind)
        except LeftOutError as how:
            left_out[name] = str(how)
            continue
        versions[make.name], cells[make.name] = measured(make, rows)
    date = datetime.now(UTC).date().isoformat()
    if options.json:
        told = {
            name: {row: {"title": ROWS[row][0], **cell._asdict()} for row, cell in each.items()}
            for name, each in cells.items()
        }
        whole = {"date": date, "versions": versions, "cells": told, "left_out": left_out}
        print(json.dumps(whole, indent=2))
        return
    missing = "".join(
        f"\nLeft out: {name}; install it by `{how}`.\n" for name, how in left_out.items()
    )
    page = PAGE if options.markdown else "{table}\n{left_out}"
    print(page.format(date=date, table=table(versions, cells, rows), left_out=missing), end="")


if __name__ == "__main__":
    main()
