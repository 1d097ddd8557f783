"""`workerctl init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tenantry_cli.workers.options import json_option
from tenantry_cli.workers.output import Screen

_FILES = {
    # in the new folder -> in `templates`
    "pyproject.toml": "pyproject.toml.txt",
    "wrangler.jsonc": "wrangler.jsonc.txt",
    "src/entry.py": "entry.py.txt",
    "tests/test_entry.py": "test_entry.py.txt",
    ".gitignore": "gitignore.txt",
}


@click.command()
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), default=".", metavar="[FOLDER]"
)
@click.option("--name", help="The worker's name; default: the folder's.")
@json_option
def init(folder: Path, name: str | None, screen: Screen) -> None:
    """Write a worker that asks a model into FOLDER, to begin with. No file is overwritten.

    \b
    workerctl init hello && cd hello && workerctl deploy
    """
    from importlib.resources import files

    from tenantry_cli.workers.config.project import as_worker_name, check_name

    like_folder = (as_worker_name(folder.resolve().name) or "worker")[:63]
    named = check_name(name or like_folder, "--name")
    there = [path for path in _FILES if path != ".gitignore" and (folder / path).exists()]
    if there:
        raise click.ClickException(f"{folder} has {', '.join(there)} already; nothing was written")
    templates = files("tenantry_cli.workers") / "templates"
    written: list[str] = []
    for path, template in _FILES.items():
        target = folder / path
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (templates / template).read_text(encoding="utf-8")
        target.write_text(text.replace("@NAME@", named), encoding="utf-8")
        written.append(path)
        screen.say(f"  {path}", dim=True)
    screen.done(f"Made the worker {named}")
    screen.say()
    screen.say("Next:")
    if folder != Path():
        screen.say(f"  cd {shlex.quote(str(folder))}")
    screen.say("  pytest             test it without a model")
    screen.say("  workerctl dev      run it here, and again at every change")
    screen.say("  workerctl deploy   give it a URL")
    screen.result({"worker": named, "folder": str(folder), "files": written})
