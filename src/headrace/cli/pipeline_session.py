"""What commands of the pipeline have around their work: its stream, Spark, and the end of both."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace import job_limits
from headrace.cli.pipeline_settings import tables_read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.client import Login
    from headrace.config import PipelineSettings


@contextmanager
def spark_for(
    settings: PipelineSettings, spark_conf: dict[str, str], place: Path | str, checkpoint: str = ""
) -> Iterator[SparkSession]:
    """A session for one command on the tables at `place`; what fails there is one line."""
    from headrace.spark.errors import SparkSideError, explain  # noqa: PLC0415
    from headrace.spark.session import FAILURES, close, session  # noqa: PLC0415

    # Where the JVM is gone, py4j logs tracebacks, and not by its own logger; what it raises tells.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    conf = {} if settings.master is None else {"spark.master": settings.master}
    conf |= settings.spark_conf | spark_conf
    try:
        spark = session(
            "headrace pipeline", memory=settings.memory, checkpoint=checkpoint, conf=conf
        )
        try:
            try:
                with tables_read(place):
                    yield spark
            except FAILURES as error:
                raise SparkSideError(explain(error)) from error  # while Spark can be asked
            finally:
                close(spark)
        except FAILURES as error:
            raise SparkSideError(explain(error)) from error
    except SparkSideError as error:
        raise click.ClickException(explain(error)) from error


def reach_stream(servers: str, stream: str, who: Login | None) -> None:
    """Asks for the stream before Spark is started, which takes seconds, and tells minutes later.

    Raises:
        ClickException: no broker answers, or it has no such stream, or lets nobody read it.
    """
    from headrace.client import ClientError, DeadlineError, FetchClient  # noqa: PLC0415

    wait_s = job_limits.PIPELINE_REACH_SECONDS
    asking = FetchClient(servers, client_id="headrace-pipeline", login=who, timeout_s=wait_s)
    try:
        with asking as client:
            client.latest_offsets(stream)
    except DeadlineError as error:
        raise click.ClickException(
            f"{error}\nstart a broker there (headrace serve), or name another with --kafka"
        ) from None
    except ClientError as error:
        raise click.ClickException(str(error)) from None


@contextmanager
def stopping(stopped_by: list[int]) -> Iterator[None]:
    """A failure after a signal may be that of Spark, which the signal has reached, too."""
    try:
        yield
    except click.ClickException as error:
        if not stopped_by:
            raise
        raise click.ClickException(
            f"{error.message}\nit was being stopped, and nothing is lost: run it again, and it "
            "goes on. If the signal has ended Spark, too, have it sent to this command alone "
            "(systemd: KillMode=mixed)"
        ) from error
