"""The ``nelu`` command: one module a command, nothing imported before it is needed.

Commands parse options, call the library and print. The library raises
:class:`~nelu_cli.errors.NeluError`; :func:`main` alone turns it into a line and a status:
0 done, 1 something failed, 2 the command makes no sense, 128 and a signal's number if it was
interrupted (130 for Ctrl-C).
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from nelu_cli import __version__, stopping
from nelu_cli.cli import (
    compare,
    data,
    denoise,
    evaluate,
    experiment,
    export,
    info,
    models,
    train,
    watch,
)
from nelu_cli.cli.help import PlainCommand
from nelu_cli.cli.plain import plain
from nelu_cli.errors import NeluError, UsageError


class _Interruption(Exception):
    """Carries Ctrl-C and its like, in ``__cause__``, past Typer, which would end without a word."""


@contextmanager
def _carried() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        raise _Interruption from stop


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with _carried():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _carried():
            return super().invoke(ctx)


app = typer.Typer(
    name="nelu",
    cls=_Commands,
    help="Clean noisy pictures: photos, scans, micrographs. Nobody has to say how noisy they are.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing the boxes is nearly half of its time
)
app.command("denoise", cls=PlainCommand)(denoise.denoise)
app.command("watch", cls=PlainCommand)(watch.watch)
app.command("compare", cls=PlainCommand)(compare.compare)
app.command("info", cls=PlainCommand)(info.info)
app.command("models", cls=PlainCommand)(models.models)
app.command("eval", cls=PlainCommand)(evaluate.evaluate)
app.command("train", cls=PlainCommand)(train.train)
app.add_typer(data.app, name="data")
app.command("export", cls=PlainCommand)(export.export)
app.command("experiment", cls=PlainCommand)(experiment.experiment)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nelu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line and exit with its status."""
    stopping.raise_stopped()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be text
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; report what goes wrong in one line on stderr; return the status."""
    try:
        return int(app(arguments, prog_name="nelu", standalone_mode=False, obj=arguments) or 0)
    except TyperException as error:
        if error.format_message():  # empty when the help was shown instead
            where = getattr(getattr(error, "ctx", None), "command_path", "nelu")
            print(f"nelu: {plain(error.format_message())} (see {where} --help)", file=sys.stderr)
        return error.exit_code
    except NeluError as error:
        print(f"nelu: {plain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nothing is left to say
        return 1
    except OSError as error:
        reason = f"{error.filename or 'error'}: {error.strerror or error}"
        print(f"nelu: {plain(reason)}", file=sys.stderr)
        return 1
    except BaseException as error:
        number = stopping.stopped_by(error.__cause__ or error)
        if number is None or isinstance(error, SystemExit):
            raise
        print("nelu: interrupted", file=sys.stderr)
        return 128 + number
