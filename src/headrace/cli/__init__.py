"""The one command, `headrace`: arguments in, wiring, and what a person or a script reads out.

A command's module is imported when the command is called, so that `headrace --help` neither
starts Spark nor loads a broker. Exit codes: 0 done, 1 failed, 2 wrong use or unreadable input;
an error is at most three lines on stderr that name the remedy.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Final, NoReturn

import click

from headrace import __version__
from headrace.adapters.machine import discard_output
from headrace.cli.terminal import visible
from headrace.errors import ConfigError, HeadraceError, InputError, UnreadableUsersError
from headrace.text import remedy

__all__ = ["main"]

DONE, FAILED, WRONG_USE = 0, 1, 2
ERROR_LINES_MAX: Final = 3

_NO_SUCH_FILE: Final = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
"""What a command was told to read or write is not that."""

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "access": ("headrace.cli.access_check:access", "Ask what access rules allow."),
    "api": ("headrace.cli.api:api", "Answer questions about GPUs, from the pipeline's tables."),
    "bench": ("headrace.cli.bench:bench", "Measure a broker by what it delivers."),
    "collect": ("headrace.cli.collect:collect", "Publish GPU telemetry to a broker."),
    "config": ("headrace.cli.config:config", "Check and show a node's settings."),
    "demo": ("headrace.cli.demo:demo", "Real GPU telemetry from MQTT to Spark tables."),
    "groups": (
        "headrace.cli.groups:groups",
        "List, describe, reset, delete Kafka consumer groups.",
    ),
    "log": ("headrace.cli.log:log", "Look at, check and repair a stopped node's data."),
    "pipeline": (
        "headrace.cli.pipeline:pipeline",
        "Bring telemetry to tables and detections, with Spark.",
    ),
    "pub": ("headrace.cli.pub:pub", "Publish messages to an MQTT broker."),
    "queues": ("headrace.cli.queues:queues", "Create, list, describe, alter, delete queues."),
    "report": ("headrace.cli.report:report", "What a fleet of GPUs did, and what that cost."),
    "retained": ("headrace.cli.retained:retained", "List, show, count, delete retained messages."),
    "serve": ("headrace.cli.serve:serve", "Run a node."),
    "sessions": ("headrace.cli.sessions:sessions", "List, show, delete, disconnect MQTT sessions."),
    "simulate": (
        "headrace.cli.simulate:simulate",
        "Publish telemetry of a fleet that does not exist.",
    ),
    "streams": ("headrace.cli.streams:streams", "Create, list, describe, alter, delete streams."),
    "sub": ("headrace.cli.sub:sub", "Print messages of an MQTT broker."),
    "trace": ("headrace.cli.trace:trace", "Watch one client or one topic live."),
    "users": ("headrace.cli.users:group", "Add, list and remove users; set passwords."),
}
"""Name: where the command is, and the line that `headrace --help` shows for it."""


class _Commands(click.Group):
    """A group whose commands are imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        # What modules make stays as long as the process: to look for garbage in it, meanwhile and
        # at the end, is a fifth of a short command.
        is_on = gc.isenabled()
        gc.disable()
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
            gc.freeze()
        finally:
            if is_on:
                gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def headrace() -> None:
    """A telemetry broker with a Spark pipeline.

    \b
    Run a node, then use it from another terminal:
      headrace serve
      headrace streams create readings --partitions 4 --filter 'sensors/#'
      headrace pub -q 1 -t sensors/a/temperature -m 21.5
      kcat -b 127.0.0.1:9092 -C -e -t readings

    \b
    Exit codes: 0 done, 1 failed, 2 wrong use or unreadable input.
    """


def main() -> NoReturn:
    """Runs the command line and exits."""
    try:
        sys.exit(_run())
    except click.exceptions.NoArgsIsHelpError as error:
        _fail(f"a command is missing\ntry: {error.ctx.command_path} --help", WRONG_USE)
    except click.UsageError as error:
        _fail(f"{error.format_message()}\ntry: {_command_path(error)} --help", WRONG_USE)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (ConfigError, InputError, UnreadableUsersError) as error:
        _fail(str(error), WRONG_USE)
    except HeadraceError as error:
        is_wrong = getattr(error, "http_status", None) == 400  # as a node would have answered
        _fail(str(error), WRONG_USE if is_wrong else FAILED)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", FAILED)
    except BrokenPipeError:
        discard_output()  # who read us has left
        sys.exit(FAILED)
    except OSError as error:
        where = "the output" if error.filename is None else error.filename
        if error.filename is None:
            discard_output()
        code = WRONG_USE if isinstance(error, _NO_SUCH_FILE) else FAILED
        _fail(f"{where}: {error.strerror}; {remedy(error, 'mend that and try again')}", code)


def _run() -> int:
    """Runs the command; the exit code.

    Raises:
        InputError: what was given is no text, which came out where it was to be sent.
    """
    try:
        code = headrace.main(prog_name="headrace", standalone_mode=False)
    except UnicodeEncodeError:  # what it is may be a password
        raise InputError(
            "an argument, or a variable of the environment, is no UTF-8 text; names, filters and "
            "passwords must be"
        ) from None
    return code if isinstance(code, int) else DONE


def _command_path(error: click.UsageError) -> str:
    """The command that was misused; click's parser does not say which one it parsed for."""
    if error.ctx is not None:
        return error.ctx.command_path
    context = click.Context(headrace, info_name="headrace")
    command: click.Command | None = headrace
    for word in sys.argv[1:]:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
        if command is None:
            break
        context = click.Context(command, info_name=word, parent=context)
    return context.command_path


def _fail(message: str, code: int) -> NoReturn:
    lines = [visible(line) for line in message.strip().split("\n")[:ERROR_LINES_MAX]]
    click.echo("\n".join([f"headrace: {lines[0]}", *lines[1:]]), err=True)
    sys.exit(code)
