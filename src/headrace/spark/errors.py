"""What goes wrong on the Spark side, and how it reaches a person in one line.

```
SparkSideError
├── JavaMissingError     no Java, or one too old
├── OptionError          an option of format("headrace") is unknown or unusable
├── OffsetError          offsets that cannot be: shrunk, of another shape, out of the log
├── DataLossError        records that the query should have read are gone
├── WriteError           a row cannot be written, or another attempt of its task is writing
└── PipelineError        tables, checkpoint and query do not fit together
```

An exception of a reader crosses two process borders as text: worker or planner to JVM, JVM to
driver. `explain` finds our line in it again.
"""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JNetworkError

from headrace.errors import HeadraceError
from headrace.text import remedy


class SparkSideError(HeadraceError):
    """Base of what the Spark source and the pipeline raise."""


class JavaMissingError(SparkSideError):
    """No Java that Spark can use; the message says how to get one."""


class OptionError(SparkSideError):
    """An option is unknown, of the wrong form, or not for this kind of read."""


class OffsetError(SparkSideError):
    """Offsets that no log can have given: they shrank, or name what does not exist."""


class DataLossError(SparkSideError):
    """Records between the offsets of a query are gone, and `failOnDataLoss` is on."""


class WriteError(SparkSideError):
    """A row cannot be written, or another attempt of its task is writing, or has."""


class PipelineError(SparkSideError):
    """Tables, checkpoint and query do not belong together, or a query ended with an error."""


_OURS: Final = re.compile(r"^(?:\w+\.)*headrace\.[\w.]*Error: (.+)$", re.MULTILINE)
_ENDED: Final = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_CHECKPOINT: Final = re.compile(
    r"Failed to read log file (?:file:)?(?P<file>\S+)\."
    r"|Checksum error: (?:file:)?(?P<sum>\S+)"
    r"|(?P<offsets>json\.decoder\.JSONDecodeError)"
    r"|(?P<metadata>com\.fasterxml\.jackson\.\S+Exception)"
)
"""What Spark says of checkpoints: of files, of offsets that it hands on, of its metadata."""

_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
"""What a Python process of Spark, or a function that Spark called, raised."""

HADOOP_AWS: Final = "org.apache.hadoop:hadoop-aws:3.5.0"
"""What reads `s3a://`, of the version of Hadoop that PySpark brings."""

_MEANINGS: Final = {
    re.compile(
        r'No FileSystem for scheme "?s3a'
        r"|Class(?:NotFoundException: | )org\.apache\.hadoop\.fs\.s3a"
    ): (
        "Spark has no jars for s3a://; run with --spark-conf "
        f"spark.jars.packages={HADOOP_AWS}, or keep the checkpoint in a local folder"
    ),
    re.compile("CONCURRENT_STREAM_LOG_UPDATE"): (
        "another query writes to this checkpoint, or files of it are missing: stop the other one, "
        "restore the checkpoint from a copy, or start with an empty one"
    ),
    re.compile(r"java\.io\.IOException: No space left on device"): (
        "a disk is full that Spark writes to, that of the checkpoint or of its own files "
        "(spark.local.dir): free space there, and run it again: it goes on"
    ),
    re.compile("Python worker failed to connect back"): (
        "a Python worker of Spark did not start within ten seconds, as on a machine that is very "
        "busy: start the query again, it goes on where it was"
    ),
    # Of a task, or of the process that plans a source.
    re.compile(
        r"Python worker exited unexpectedly"
        r"|^(?:\[STREAM_FAILED\] Query \[.*?\] terminated with exception: )?Broken pipe SQLSTATE"
    ): (
        "a Python worker of Spark ended in the middle of its work, as one does that is killed for "
        "want of memory: start the query again, it goes on where it was"
    ),
}
"""What Spark says, and what to tell of it."""

_CALLED: Final = re.compile(r"^An error occurred while calling \S+\n: (?:[\w$]+\.)*[\w$]+: ")
"""How an error begins that Spark's Python has no class for."""


_SQLSTATE: Final = re.compile(r" SQLSTATE: \w{5}$")
"""A class of errors of the SQL standard, with which Spark ends its own."""

_SYSTEM: Final = re.compile(r"^(?:\w+\.)*\w*Error: \[Errno (\d+)\] (.+?): '(.+)'$")
"""What the system refused, and of which file."""


def explain(error: BaseException) -> str:
    """The one line of `error` that a person can act on.

    Our own errors come out as they were raised, wherever Spark wrapped them; what Spark says of a
    checkpoint that it cannot read is said with a remedy; of any other the line is kept that Python
    raised, or the first one.
    """
    text = str(error)
    if found := _OURS.search(text):
        return found[1].strip()
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return (
            "Spark's JVM has ended, as one does that is killed for want of memory: run it again, "
            "it goes on where it was"
        )
    return _known(text) or _first(text) or type(error).__name__


def _known(text: str) -> str | None:
    """What Spark's words mean, and what to do; None where nothing more is known than they say."""
    if found := _CHECKPOINT.search(text):
        place = found["file"] or found["sum"] or ("offsets" if found["offsets"] else "metadata")
        return (
            f"the checkpoint cannot be read ({place} is damaged): restore it from a copy, or start "
            "with an empty one"
        )
    return next((meaning for words, meaning in _MEANINGS.items() if words.search(text)), None)


def _first(text: str) -> str:
    """The line that Python raised, or the first one."""
    first = _ENDED.sub("", _CALLED.sub("", text.strip()).partition("\n")[0])
    *_, line = first, *_RAISED.findall(text)
    if found := _SYSTEM.match(line.strip()):
        to_do = remedy(OSError(int(found[1]), found[2]), "mend that")
        return f"{found[3]}: {found[2]}; {to_do}, and run it again: it goes on"
    return _SQLSTATE.sub("", line.strip())
