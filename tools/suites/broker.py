"""The broker under test: one that runs, or a node of our own for the time of a suite."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

#: The suites of Eclipse Paho subscribe to a topic that they expect to be refused, and expect a
#: keep-alive of the server's own; the byte sequences know of ten aliases.
CONFIGURATION = """\
[mqtt]
bind = "127.0.0.1:0"
keep_alive_max = "60s"
ws_bind = "off"
topic_alias_maximum = 10

[kafka]
bind = "127.0.0.1:0"

[http]
bind = "127.0.0.1:0"

[node]
default_stream = false
"""


class Broker(NamedTuple):
    """Where MQTT is served."""

    host: str
    port: int

    @classmethod
    def parse(cls, address: str) -> Self:
        """From `HOST:PORT`."""
        host, _, port = address.rpartition(":")
        return cls(host or "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@contextmanager
def started() -> Iterator[Broker]:
    """A node with an empty folder, which ends with the block."""
    with TemporaryDirectory(prefix="headrace-suite-") as folder:
        config = Path(folder) / "headrace.toml"
        config.write_text(CONFIGURATION, encoding="utf-8")
        command = [sys.executable, "-m", "headrace", "serve", "--json", "--config", str(config)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        with subprocess.Popen(
            [*command, "--data", str(Path(folder) / "data")],
            stdout=subprocess.PIPE,
            env=environment,
        ) as node:
            try:
                assert node.stdout is not None
                line = node.stdout.readline()
                if not line:
                    sys.exit("the node did not start; its log above says why")
                yield Broker.parse(json.loads(line)["mqtt"])
            finally:
                node.terminate()
