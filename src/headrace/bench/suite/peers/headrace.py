"""headrace itself, started as a user starts it."""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace import __version__
from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Mode, Running
from headrace.bench.suite.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.bench.suite.peers.peer import Feature
    from headrace.model import Address

DURABLE_FILTER: Final = "bench/#"
"""What the load publishes, which a stream stores in durable mode."""

_SETTINGS: Final = """\
[node]
default_stream = false
[mqtt]
bind = "{mqtt}"
ws_bind = "off"
[kafka]
bind = "{kafka}"
[http]
bind = "{http}"
[frame]
bind = "off"
[log]
retention_check = "1s"
"""

_OF_MODE: Final = {
    Mode.MEMORY: 'fsync = "os"\n',
    Mode.DURABLE: f'[streams.bench]\nfilters = ["{DURABLE_FILTER}"]\n',
}

_PROMISES: Final = {
    (Door.MQTT, Mode.MEMORY): "acknowledges from memory",
    (Door.MQTT, Mode.DURABLE): "stored in a stream: acknowledges after fdatasync",
    (Door.KAFKA, Mode.MEMORY): "fsync=os: acknowledges from the page cache",
    (Door.KAFKA, Mode.DURABLE): "acknowledges after fdatasync",
    (Door.QUEUE, Mode.DURABLE): "acknowledges publishes and settlements after fdatasync",
}

_COMMITS: Final = "headrace_log_rounds_total "
_METRICS_SECONDS: Final = 10.0


@cache
def version() -> str:
    """Of this package, with what tells two of one version apart: a checksum of its code."""
    package = Path(sys.modules["headrace"].__path__[0])
    code = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in {".py", ".so"}:
            code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}, build {code.hexdigest()[:8]}"


class Headrace:
    """The one that this module is of."""

    name = "headrace"
    doors = frozenset(Door)
    install = "pip install headrace"
    lacks: frozenset[Feature] = frozenset()

    def version(self) -> str:
        """Of this package."""
        return version()

    def promise(self, door: Door, mode: Mode) -> str | None:
        """What an acknowledgement means; queues have one mode."""
        return _PROMISES.get((door, mode))

    @contextmanager
    def start(self, folder: Path, mode: Mode) -> Iterator[Running]:
        """Starts a node on an empty folder.

        Raises:
            StartError: it did not come up.
        """
        mqtt, kafka, http = unused(3)
        config = folder / "headrace.toml"
        config.write_text(_SETTINGS.format(mqtt=mqtt, kafka=kafka, http=http) + _OF_MODE[mode])
        doors = {Door.MQTT: mqtt, Door.KAFKA: kafka, Door.QUEUE: http}
        # -P: a folder named headrace, where the user happens to be, is not what is meant.
        command = [sys.executable, "-P", "-m", "headrace", "serve", "--json"]
        command += ["--config", str(config), "--data", str(folder / "data")]
        # Variables are settings of the user's own node.
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("HEADRACE_")}
        child = Child(self.name, command, folder, doors, environment=kept)
        with child.running() as running:
            yield replace(running, commits=lambda: _commits(http))


def _commits(http: Address) -> float:
    """Commit rounds so far, each with one fdatasync for all that waits."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=_METRICS_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(_COMMITS))
