"""Rows of the Spark source and the pipeline, each a measure of `headrace bench spark`."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from headrace.bench.spark import MEASURES

Row = dict[str, float]


def measured(measure: str) -> Row:
    """Figures, what they are of their baselines, and what they are to reach."""
    command = [sys.executable, "-m", "headrace", "bench", "spark", measure, "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Row = {}
    for row in json.loads(ran.stdout)["rows"]:
        name = f"{row['name']} ({row['unit']})"
        of_baseline = f"{name} of {row['baseline']}"
        given = {name: row["figure"], of_baseline: row["ratio"], f"{name} target": row["target"]}
        found |= {key: value for key, value in given.items() if value is not None}
    return found


ROWS: dict[str, Callable[[], Row]] = {
    f"spark-{measure}": partial(measured, measure) for measure in MEASURES
}
