"""A `headrace api` process, and tables for it."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from buckets import Tables
from conftest import environment, wait_for
from frames import at, metric, payload

UTIL, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
XID, ENERGY = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


class RunningApi:
    """One process.

    Attributes:
        ready: its ready line, as JSON.
        process: to signal and to wait for.
    """

    def __init__(self, tables, *args, bind="127.0.0.1:0", **extra):
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "api", "--tables", str(tables), "--json",
                *([] if bind is None else ["--bind", bind]), *args,
            ],
            env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.ready = json.loads(line)
        self.url = f"http://{self.ready['http']}"

    def get(self, path, headers=None, **query):
        """Status, and the answer's JSON or text."""
        asked = urllib.parse.urlencode(query)
        url = f"{self.url}{path}{'?' if asked else ''}{asked}"
        request = urllib.request.Request(url, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                status, content, kind = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers
        text = content.decode()
        return status, json.loads(text) if kind.get_content_type() == "application/json" else text

    def ok(self, path, **query):
        """The answer to what is right."""
        status, told = self.get(path, **query)
        assert status == 200, told
        return told

    def pages(self, path, what, **query):
        """All rows, page by page."""
        while True:
            told = self.ok(path, **query)
            yield told[what]
            if told["next"] is None:
                return
            query["next"] = told["next"]

    def has_version(self, version):
        """Waits until it shows a version of the tables."""
        wait_for(lambda: self.get("/ready")[1]["version"] >= version)

    def stop(self):
        """SIGTERM; the exit code, and its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log

    def close(self):
        """Ends it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)


def telemetry(api, gpu="GPU-0", **query):
    return api.ok(f"/api/v1/gpus/{urllib.parse.quote(gpu, safe='')}/telemetry", **query)


def z(seconds):
    """A time as the API tells it."""
    return at(seconds).replace(".000000+00:00", "Z")


def scrape(gpu, seconds, pod="train-1", **values):
    """Narrow messages of one GPU at one time."""
    host = f"node-{gpu // 8}"
    labels = {"gpu": str(gpu % 8), "model_name": "NVIDIA H200", "pod": pod, "namespace": "team-a"}
    where = {"gpu_id": f"GPU-{gpu}", "hostname": host, "device": f"nvidia{gpu % 8}"}
    return [
        metric(name, value, seconds, labels=labels, **where)
        for name, value in {UTIL: 50, POWER: 300, **values}.items()
    ]


def day(root, gpus=3, scrapes=40, **given):
    """Tables of a few GPUs, a scrape each 15 s; xid 79 on GPU-0 at the end."""
    made = Tables(root, interval_us=15_000_000, prices={"default": 3.6}, energy_price=0.1, **given)
    for first in range(0, scrapes, 10):
        story = []
        for number in range(first, first + 10):
            for gpu in range(gpus):
                code = 79 if (gpu, number) >= (0, scrapes - 2) and gpu == 0 else 0
                values = {UTIL: number % 100, POWER: 100 + gpu, XID: code}
                story += scrape(gpu, number * 15, **values)
        made.write(story)
    return made


__all__ = [
    "ENERGY", "POWER", "UTIL", "XID", "RunningApi", "at", "day", "payload", "scrape", "telemetry",
    "z",
]  # fmt: skip
