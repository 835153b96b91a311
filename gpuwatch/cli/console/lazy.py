"""Command groups that load a command only when it runs, so that help costs nothing but click; and the outermost group,
which turns whatever ends a command early into one line on stderr and an exit code:

    gpuwatch: error: WHAT; WHY; NEXT STEP

With -o json the same also comes as JSON on stderr; with -vv the traceback comes first.
"""

import difflib
import errno
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from gpuwatch.cli.console.commands import EPILOG, Entry
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.console.terminal import as_typed
from gpuwatch.model.errors import GpuwatchError, UsageError

INTERRUPTED = 130


class HelpContext(click.Context):
    """Click's context; the examples in a help page are as they have to be typed here."""

    def get_help(self) -> str:
        """The help page of the command."""
        return as_typed(super().get_help())


class LazyGroup(click.Group):
    """A group made of a table of entries."""

    context_class = HelpContext

    def __init__(self, *args: object, entries: Sequence[Entry] = (), **attributes: object) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]
        self.entries = {entry.name: entry for entry in entries}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, print the help and end with 0; click since 8.2 prints it to stderr and ends with 2."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)  # noqa: TID251 of our own text
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: what a person on call needs comes first."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(f"gpuwatch.cli.{module}"), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 the table is ours; a test walks all of it
        command.epilog = command.epilog or EPILOG
        command.context_class = HelpContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a mistyped command is answered with the nearest one."""
        name = args[0]
        if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {near[0]}?" if near else "the commands are: " + ", ".join(self.entries)
            raise click.UsageError(f"no such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One block of commands for each section."""
        width = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(e.name.ljust(width), e.help) for e in self.entries.values() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


class Root(LazyGroup):
    """The outermost group: the one place where exceptions become exit codes."""

    def main(  # type: ignore[override]  # click has an overload for each mode; ours is always the same
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command line to its end; always raises SystemExit."""
        session = extra.setdefault("obj", Session())
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **extra)
        except click.Abort:
            code = INTERRUPTED
        except (click.ClickException, GpuwatchError) as error:
            code = report(known(error), session)
        except BrokenPipeError:
            raise  # click ends quietly on it
        except Exception as error:  # noqa: BLE001 the edge of the program: a bug becomes a message and exit 1
            code = report(_bug(error), session)
        sys.exit(code if isinstance(code, int) else 0)


def known(error: click.ClickException | GpuwatchError) -> GpuwatchError:
    """Click's own errors as a GpuwatchError."""
    if isinstance(error, GpuwatchError):
        return error
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx else "gpuwatch"
    message = " ".join(error.format_message().split()).rstrip(".")
    usage = UsageError(message[:1].lower() + message[1:], "", f"see {path} --help")
    usage.__cause__ = error
    return usage


def report(error: GpuwatchError, session: Session) -> int:
    """Write the error to stderr and return its exit code."""
    terminal = session.terminal
    if session.verbose >= 2:
        terminal.details("".join(traceback.format_exception(error)))
    terminal.error(str(error))
    if session.json_errors:
        from gpuwatch.cli.console.document import to_json

        body = {"code": error.exit_code, "message": error.what, "reason": error.why, "hint": error.next_step}
        terminal.details(to_json({"error": body}, lines=True) + "\n")
    return error.exit_code


def _bug(error: Exception) -> GpuwatchError:
    if isinstance(error, OSError) and error.filename:
        cause = GpuwatchError(f"cannot use {error.filename}", error.strerror or str(error), "check the path")
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        cause = GpuwatchError("the output cannot be written", str(error.strerror), "make room where it goes")
    elif isinstance(error, UnicodeEncodeError):
        cause = UsageError(f"cannot use {error.object!r}", "it is not UTF-8", "write it in UTF-8")
    else:
        detail = f"{type(error).__name__}: {error}".rstrip(": ")
        cause = GpuwatchError("something went wrong inside gpuwatch", detail, "run again with -vv and report it")
    cause.__cause__ = error
    return cause
