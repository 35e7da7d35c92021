"""`headrace collect nvml`: the GPUs of this machine to a broker, round after round."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from headrace import job_limits
from headrace.cli.collect.live import Live, live_options
from headrace.collect.background import rounds
from headrace.collect.conditions import Condition
from headrace.collect.feed import Batch
from headrace.text import counted

if TYPE_CHECKING:
    from headrace.cli.collect.live import Say
    from headrace.collect.feed import Feed

_READING_BYTES: Final = 400
_FIRST_S_MAX: Final = 1.0
"""Profiling is a mean between two samples; DCGM's default is a second."""


@click.command("nvml", short_help="Publish the state of this machine's GPUs.")
@live_options
def nvml(**live: Any) -> None:  # noqa: ANN401 - the members of Live, typed there
    """Publish what NVML says of the GPUs of this machine, and of their MIG slices, until a signal.

    It needs an NVIDIA driver, and nvidia-ml-py (pip install 'headrace[gpu]'). Readings have the
    names and units of DCGM: DCGM_FI_DEV_POWER_USAGE in W, DCGM_FI_DEV_FB_USED in MiB, and so on,
    DCGM_FI_PROF_... as ratios on Hopper and later. What a device does not have is left out, and
    said once. An XID is published when it occurs, and with each round after it.

    The first round is a second after the start, for profiling is a mean since the round before.
    While the broker is away, what is read waits in memory, up to 64 MiB. A signal ends the rounds,
    waits for what is out, and exits with 0.

    \b
    Examples:
      headrace collect nvml
      headrace collect nvml --interval 1s --wide --mqtt broker-1:1883
      headrace collect nvml --once --json
    """
    from headrace.collect.nvml import Gpus  # noqa: PLC0415

    settings = Live(**live)
    gpus = Gpus.open(lambda line: click.echo(line, err=True))
    counts = Counter[str]()

    async def work(feed: Feed, say: Say) -> None:
        gpus.say = say
        await asyncio.sleep(min(settings.interval_s, _FIRST_S_MAX))
        full = Condition()
        async for missed in rounds(None if settings.once else settings.interval_s):
            counts["skipped"] += missed
            if not feed.has_room:
                counts["skipped"] += 1
                if full.seen("full", time.monotonic()):
                    size = job_limits.COLLECT_BACKLOG_BYTES >> 20
                    say(f"the GPUs are not read while {size} MiB wait for the broker")
                continue
            if full.absent(time.monotonic()) is not None:
                say("the GPUs are read again")
            now_us = time.time_ns() // 1000
            readings = gpus.read(now_us)
            counts["rounds"] += 1
            if readings:
                feed.put(Batch(readings, time.time_ns() // 1000, _READING_BYTES * len(readings)))

    def summary() -> tuple[str, dict[str, Any]]:
        rounds = {name: counts[name] for name in ("rounds", "skipped")}
        return counted(counts["rounds"], "round"), rounds

    try:
        settings.run(f"{socket.gethostname()[:64]}/nvml", work, summary)
    finally:
        gpus.close()
