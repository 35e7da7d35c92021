"""The broker under test: one that runs, or a node of our own for the time of a suite."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import trustme

#: The suites of Eclipse Paho expect a keep-alive of the server's own; the byte sequences know of
#: ten aliases.
CONFIGURATION = """\
[mqtt]
bind = "127.0.0.1:0"
keep_alive_max = "60s"
ws_bind = "off"
topic_alias_maximum = 10

[kafka]
bind = "127.0.0.1:0"

[frame]
bind = "off"

[http]
bind = "127.0.0.1:0"

[node]
default_stream = false
"""

#: The suites of Eclipse Paho subscribe to a topic that they expect to be refused, with 0x80 alone.
#: It begins with `$`, so that the suites' `#` does not cover it. Other suites name users that
#: nobody knows, whom a node with rules refuses.
RULES = """
[access]
anonymous = true
no_match = "allow"
reveal_refusals = false

[[access.rules]]
deny = ["subscribe"]
topics = ["$test/nosubscribe"]
"""


class Broker(NamedTuple):
    """Where MQTT is served, the file of the authority of its certificate, and its HTTP address."""

    host: str
    port: int
    authority: Path | None = None
    url: str = ""

    @classmethod
    def parse(cls, address: str) -> Self:
        """From `HOST:PORT`."""
        host, _, port = address.rpartition(":")
        return cls(host or "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def certificate(folder: Path) -> tuple[dict[str, str], Path]:
    """Settings of a node with a certificate for 127.0.0.1, and the file of its authority."""
    authority = trustme.CA()
    file = folder / "authority.pem"
    authority.cert_pem.write_to_path(file)
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / "node.pem")
    issued.private_key_pem.write_to_path(folder / "node.key")
    names = {"CERTIFICATE": "node.pem", "KEY": "node.key"}
    return {f"HEADRACE_MQTT__TLS_{key}": str(folder / name) for key, name in names.items()}, file


@contextmanager
def started(
    settings: Mapping[str, str], tables: str = "", users: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A node with an empty folder, these variables and further tables, which ends with the block.

    It has a certificate where the variables say where MQTT over TLS is served. All of the users,
    given by name with their passwords, have the role `admin`.
    """
    with TemporaryDirectory(prefix="headrace-suite-") as folder:
        config = Path(folder) / "headrace.toml"
        config.write_text(CONFIGURATION + tables, encoding="utf-8")
        command = [sys.executable, "-m", "headrace", "serve", "--json", "--config", str(config)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        authority = None
        if "HEADRACE_MQTT__TLS_BIND" in settings:
            files, authority = certificate(Path(folder))
            environment |= files
        data = Path(folder) / "data"
        for name, password in (users or {}).items():
            add = [sys.executable, "-m", "headrace", "users", "add", name, "--role", "admin"]
            subprocess.run(
                [*add, "--data", str(data)],
                check=True, env=environment, input=password.encode(), stdout=subprocess.DEVNULL,
            )  # fmt: skip
        with subprocess.Popen(
            [*command, "--data", str(data)],
            stdout=subprocess.PIPE,
            env={**environment, **settings},
        ) as node:
            try:
                assert node.stdout is not None
                line = node.stdout.readline()
                if not line:
                    sys.exit("the node did not start; its log above says why")
                ready = json.loads(line)
                url = f"http://{ready['http']}"
                yield Broker.parse(ready["mqtt"])._replace(authority=authority, url=url)
            finally:
                node.terminate()
