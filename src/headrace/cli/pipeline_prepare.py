"""`headrace pipeline prepare`: what makes later starts of Spark faster."""

from __future__ import annotations

import click

from headrace.cli.pipeline_settings import need_spark

__all__ = ["prepare"]


@click.command(short_help="Make starts of Spark faster, once.")
def prepare() -> None:
    """Keep what Spark loads, so that it starts in two thirds of the time.

    Spark reads and verifies 18,000 classes when it starts. This starts it
    once, and keeps them as the JVM has them in memory: 170 MB beside the
    installed packages, half a minute. Run it once more after an update of
    Java or Spark, and in the build of a container image.

    \b
    Example:
      headrace pipeline prepare
    """
    need_spark()
    from headrace.pipeline.prepare import prepare as make  # noqa: PLC0415
    from headrace.spark.archive import archive_path  # noqa: PLC0415
    from headrace.spark.errors import SparkSideError, explain  # noqa: PLC0415
    from headrace.spark.session import FAILURES  # noqa: PLC0415

    try:
        archive = archive_path()
        if not archive.is_file():
            click.echo("starting Spark once, to keep what it loads: half a minute", err=True)
        click.echo(f"{make()}: {archive.stat().st_size / 1e6:.0f} MB; starts of Spark use it")
    except OSError as error:
        raise click.ClickException(
            f"{error.filename or archive.parent}: {error.strerror}; prepare as the user who "
            "installed headrace, or install it into a virtual environment of yours"
        ) from None
    except (SparkSideError, *FAILURES) as error:
        raise click.ClickException(explain(error)) from error
