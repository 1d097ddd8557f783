"""`workerctl ai` for whoever is signed in, and what it has of wrangler's `ai models`."""

from __future__ import annotations

import json

import pytest

from support.answers import a_model
from support.fake_control_plane import TOKEN, ControlPlaneFake
from support.worker_folder import WorkerFolder


def test_models_are_those_of_the_server_that_one_is_signed_in_to(
    plane: ControlPlaneFake, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.models = [a_model("@cf/moonshotai/kimi-k2.6"), a_model("@cf/zai-org/glm-5.2")]
    for name in plane.environment:
        monkeypatch.delenv(name)
    folder.run("login", plane.base_url, stdin=TOKEN)

    listed = folder.run("ai", "models", "list", "--search", "KIMI", "--json")

    assert [model["name"] for model in json.loads(listed.stdout)] == ["@cf/moonshotai/kimi-k2.6"]


def test_a_models_schema_is_printed(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    result = folder.run("ai", "models", "schema", "kimi-k2.6")

    assert json.loads(result.stdout) == {"input": {"title": "kimi-k2.6"}, "output": {}}
