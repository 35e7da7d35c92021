"""Reads streams by Spark's own Kafka source and by headrace's, in one session of a process.

    python sparkpeer.py JARS QUESTIONS.json ANSWERS.json

Each question is `{"format", "options", "streaming"}`, each answer `{"schema", "rows"}`: the rows in
the order of topic, partition and offset, bytes and times as Python shows them.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.spark import close, session


def ask(spark: SparkSession, question: dict, number: int) -> DataFrame:
    """What a question is about."""
    reader = spark.readStream if question["streaming"] else spark.read
    frame = reader.format(question["format"]).options(**question["options"]).load()
    if not question["streaming"]:
        return frame
    name = f"answer{number}"
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("memory").queryName(name)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return spark.table(name)


def rows(frame: DataFrame) -> list:
    """All rows, by value."""
    found = [row.asDict(recursive=True) for row in frame.drop("timestampType").collect()]
    found.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return found


def main(jars: Path, questions: Path, answers: Path) -> None:
    """Answers all questions."""
    began = time.monotonic()
    names = ",".join(map(str, jars.glob("*.jar")))
    spark = session("peers", cores=2, short_run=True, conf={"spark.jars": names})
    found = []
    for number, question in enumerate(json.loads(questions.read_text())):
        frame = ask(spark, question, number)
        found.append({"schema": json.loads(frame.schema.json())["fields"], "rows": rows(frame)})
        print(f"{time.monotonic() - began:.1f} s after question {number}", flush=True)
    close(spark)
    answers.write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
