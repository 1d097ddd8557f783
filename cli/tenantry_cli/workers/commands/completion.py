"""`workerctl completion`."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
_HOW = """\b
bash:  eval "$(workerctl completion bash)"     in ~/.bashrc
zsh:   eval "$(workerctl completion zsh)"      in ~/.zshrc
fish:  workerctl completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(epilog=_HOW)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete `workerctl`'s commands and options."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "workerctl", "_WORKERCTL_COMPLETE").source())
