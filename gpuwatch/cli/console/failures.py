"""What ends a command early, turned into one line on stderr and an exit code.

    gpuwatch: error: WHAT; WHY; NEXT STEP

With -o json the same also comes as JSON on stderr; with -vv the traceback comes first.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.program import as_typed
from gpuwatch.cli.console.session import Session
from gpuwatch.model.errors import GpuwatchError, UsageError

INTERRUPTED = 130


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
    """Click's own complaints in our words."""
    if isinstance(error, GpuwatchError):
        return error
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx else "gpuwatch"
    message = " ".join(error.format_message().split()).rstrip(".")
    usage = UsageError(message[:1].lower() + message[1:], "", f"see {path} --help")
    usage.__cause__ = error
    return usage


def report(error: GpuwatchError, session: Session) -> int:
    """Write the error to stderr and give its exit code."""
    if session.verbose >= 2:
        traceback.print_exception(error)
    line = f"{click.style('gpuwatch: error:', fg='red')} {as_typed(str(error))}"
    click.echo(line, err=True, color=session.terminal.error_color)
    if session.json_errors:
        import msgspec

        body = {"code": error.exit_code, "message": error.what, "reason": error.why, "hint": error.next_step}
        click.echo(msgspec.json.encode({"error": body}), err=True)
    return error.exit_code


def _bug(error: Exception) -> GpuwatchError:
    if isinstance(error, OSError) and error.filename:
        cause = GpuwatchError(f"cannot use {error.filename}", error.strerror or str(error), "check the path")
    else:
        detail = f"{type(error).__name__}: {error}".rstrip(": ")
        cause = GpuwatchError("something went wrong inside gpuwatch", detail, "run again with -vv and report it")
    cause.__cause__ = error
    return cause
