"""How long `headrace api` takes to answer about a month of a fleet.

    python benchmarks/tables.py FOLDER        # once: 100 GPUs at 15 s, 30 days
    python benchmarks/api.py FOLDER

Each question is asked of GPUs, metrics and times that are drawn by chance, one at a time over a
connection that stays open, and checked for what it must hold. Times are from the request to the
last byte of the answer. `cpu` is the server's processor time for each, which other work on the
machine moves less. `--clients N` asks from as many connections at once.
"""

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from headrace.dcgm.fields import IN_INTERVALS, Keep

AVERAGED = [field.name for field in IN_INTERVALS if Keep.MEAN in field.columns]
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
TICKS = os.sysconf("SC_CLK_TCK")


class Asker:
    """Questions about the GPUs of one server."""

    def __init__(self, address, days, readings_days, seed):
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.random = random.Random(seed)
        self.days, self.readings_days = days, readings_days
        self.gpus = [each["id"] for each in self.get("/api/v1/gpus", limit=1000)["gpus"]]

    def get(self, path, **query):
        self.connection.request("GET", f"{path}?{urlencode(query)}" if query else path)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        return json.loads(content)

    def gpu(self, what=""):
        return f"/api/v1/gpus/{self.random.choice(self.gpus)}{what}"

    def stretch(self, hours, days=None):
        """A stretch of time of so many hours, among the last of so many days."""
        first = self.days - (days or self.days)
        latest = self.days * 24 - hours
        start = BEGIN + timedelta(hours=self.random.randint(first * 24, latest))
        end = start + timedelta(hours=hours) - timedelta(microseconds=1)
        return {"start_time": start.isoformat(), "end_time": end.isoformat()}

    def windows(self, hours, window, rows):
        metric = self.random.choice(AVERAGED)
        told = self.get(
            self.gpu("/telemetry"), metric_name=metric, window=window, **self.stretch(hours)
        )
        assert (len(told["telemetry"]), told["source"]) == (rows, "gpu_intervals"), told

    def readings(self, hours, rows, **query):
        query = self.stretch(hours, self.readings_days) | query
        told = self.get(self.gpu("/telemetry"), **query)
        assert (len(told["telemetry"]), told["source"]) == (rows, "readings"), len(told)

    def questions(self):
        """Each question by its name."""
        return {
            "gpus": lambda: self.get("/api/v1/gpus"),
            "gpu": lambda: self.get(self.gpu()),
            "gpu metrics": lambda: self.get(self.gpu("/metrics")),
            "telemetry 1 h by 1 m": lambda: self.windows(1, "1m", 60),
            "telemetry 1 day by 5 m": lambda: self.windows(24, "5m", 288),
            "telemetry 1 week by 1 h": lambda: self.windows(168, "1h", 168),
            "telemetry 1 month by 1 h": lambda: self.windows(self.days * 24, "1h", self.days * 24),
            "readings 1 metric, 1 h": lambda: self.readings(
                1, 240, metric_name="DCGM_FI_DEV_POWER_USAGE"
            ),
            "readings 1 metric, 1 day": lambda: self.readings(
                24, 1000, metric_name="DCGM_FI_DEV_GPU_TEMP"
            ),
            "readings all, 1 h, 1000 rows": lambda: self.readings(1, 1000),
            "detections": lambda: self.get("/api/v1/detections"),
            "detections of a GPU": lambda: self.get(
                "/api/v1/detections", uuid=self.random.choice(self.gpus), open="true"
            ),
            "detections of a day": lambda: self.get("/api/v1/detections", **self.stretch(24)),
            "fleet, all time": lambda: self.get("/api/v1/fleet/summary"),
            "fleet, a week by chance": lambda: self.get(
                "/api/v1/fleet/summary", **self.stretch(168)
            ),
        }


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(name, askers, count, pid):
    """Seconds of each answer, sorted, and the server's processor time of one."""
    found = []

    def ask(asker):
        question = asker.questions()[name]
        question()
        for _ in range(count // len(askers)):
            begun = time.perf_counter()
            question()
            found.append(time.perf_counter() - begun)

    before = processor_seconds(pid)
    threads = [threading.Thread(target=ask, args=(asker,)) for asker in askers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = processor_seconds(pid) - before
    return sorted(found), spent / (len(found) + len(askers))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300, help="of each question")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--readings-days", type=int, default=2)
    parser.add_argument("--only", help="questions whose name begins so")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    command = [sys.executable, "-m", "headrace", "api", "--tables", str(given.folder)]
    begun = time.perf_counter()
    server = subprocess.Popen(
        [*command, "--bind", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        ready = json.loads(server.stdout.readline())
        start_s = time.perf_counter() - begun
        askers = [
            Asker(ready["http"], given.days, given.readings_days, seed)
            for seed in range(given.clients)
        ]
        rows = {}
        if not given.json:
            print(f"ready after {start_s:.1f} s; milliseconds of {given.count} answers each")
            print(f"{'question':30} {'p50':>8} {'p99':>8} {'max':>8} {'cpu':>8}")
        for name in askers[0].questions():
            if given.only and not name.startswith(given.only):
                continue
            times, cpu = measure(name, askers, given.count, server.pid)
            p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
            row = {"p50": p50, "p99": p99, "max": times[-1], "cpu": cpu}
            rows[name] = {key: round(value * 1e3, 2) for key, value in row.items()}
            if not given.json:
                print(f"{name:30} " + " ".join(f"{each:8.1f}" for each in rows[name].values()))
        if given.json:
            print(json.dumps({"start_s": start_s, "questions": rows}))
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
