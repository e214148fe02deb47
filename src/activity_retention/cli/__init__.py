"""The command line: one file a command; errors become exit codes here."""

import os
import sys

import typer

from activity_retention import __version__
from activity_retention.cli import config, demo, plan, run, schema, serve, status
from activity_retention.cli.command import REFUSED, refusal, register, setting_options

_HELP = "Deletes expired rows from PostgreSQL safely, fast and observably."


def main() -> None:
    """The console command `activity-retention`."""
    # typer carries its own click and does not export the root of its exceptions.
    from typer._click.exceptions import ClickException, NoArgsIsHelpError

    _reopen_closed_streams()
    try:
        code = build()(standalone_mode=False)
    except NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else _HELP)
        code = REFUSED
    except ClickException as error:
        code = refusal([f"{error.format_message()} (see activity-retention --help)"], as_json="--json" in sys.argv)
    except typer.Exit as error:
        code = error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more at exit.
        sys.stdout = None
        code = 1
    sys.exit(code)


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", is_eager=True, callback=_version, help="Show the version."
        ),
    ) -> None:
        pass

    options = setting_options()
    for command in (demo.demo, run.run, plan.plan, serve.serve, status.status, config.config, schema.schema):
        register(app, command, options)
    return app


def _reopen_closed_streams() -> None:
    """Otherwise what is meant for stderr goes to stdout, and a socket takes the place of a stream that the server's
    library writes to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _version(wanted: bool) -> None:
    if wanted:
        print(f"activity-retention {__version__}")
        raise typer.Exit
