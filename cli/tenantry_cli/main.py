"""`workerctl`: the groups of commands, and how every command ends.

| exit code | when |
|---|---|
| 0 | done |
| 1 | it failed, and stderr says at what; or the answer to its question was no |
| 2 | the command line is wrong, or the configuration of a worker |
| 130 | Ctrl-C |
"""

from __future__ import annotations

from typing import Any

import click

from .ai import ai
from .batch import batch
from .bench import bench
from .dev import dev
from .drill import drill
from .evaluate import evaluate
from .incidents import incidents
from .models import models
from .node import node
from .plan import plan
from .sandbox import sandbox
from .serve import serve
from .tenant import tenant
from .token import token
from .top import top
from .usage import usage
from .workers import COMMANDS as WORKER_COMMANDS

INTERRUPTED = 130


class Commands(click.Group):
    """Ends what fails for a reason that a user can act on in one line, without a traceback."""

    # Any: as click has it
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.Abort as abort:
            # at a question, whose line is still open; "no" is another answer
            if not isinstance(abort.__context__, KeyboardInterrupt):
                raise
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except Exception as error:
            # a tenth of a second that a command which does not call the SDK does without
            from tenantry import TenantryError

            # first, as some are kinds of `OSError` too
            if isinstance(error, TenantryError):
                raise click.ClickException(" ".join(str(error).split())) from error
            if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
                # what Python makes of arguments and input that it cannot decode
                raise click.ClickException("an argument or the input is not UTF-8 text") from error
            # of a file that the user named, or that is in the way
            if isinstance(error, OSError) and error.filename is not None:
                raise click.ClickException(f"{error.filename}: {error.strerror}") from error
            raise


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from tenantry import __version__

        click.echo(f"workerctl {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run and call large models on your own machines, and deploy workers to them.

    `workerctl dev` starts everything on this machine; `workerctl ai run` asks a model something;
    `workerctl init` makes a worker, and `workerctl deploy` gives it a URL.
    """


main.add_command(ai)
main.add_command(batch)
main.add_command(bench)
main.add_command(dev)
main.add_command(drill)
main.add_command(evaluate)
main.add_command(incidents)
main.add_command(models)
main.add_command(node)
main.add_command(plan)
main.add_command(sandbox)
main.add_command(serve)
main.add_command(tenant)
main.add_command(token)
main.add_command(top)
main.add_command(usage)
for command in WORKER_COMMANDS:
    main.add_command(command)
