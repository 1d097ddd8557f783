"""`workerctl ai models`: a table for people, JSON for programs."""

from __future__ import annotations

import json

from support.answers import a_model
from support.command_line import workerctl
from support.http_peer import Exchange, a_peer

PRICE = [
    {"unit": "per M input tokens", "price": 0.95, "currency": "USD"},
    {"unit": "per M cached input tokens", "price": 0.16, "currency": "USD"},
    {"unit": "per M output tokens", "price": 4, "currency": "USD"},
]
OFFERED = [
    a_model(
        "@cf/moonshotai/kimi-k2.6",
        context_window="262144",
        price=PRICE,
        function_calling="true",
        reasoning="true",
        vision="false",
    ),
    a_model("@cf/zai-org/glm-5.2", reasoning_effort={"mandatory": True}),
]

TABLE = """\
MODEL                     CONTEXT     IN  CACHED  OUT  FEATURES
@cf/moonshotai/kimi-k2.6   262144  $0.95   $0.16   $4  tools, reasoning
@cf/zai-org/glm-5.2             -      -       -    -  -
"""


def offer(exchange: Exchange) -> None:
    info = {"page": 1, "per_page": 100, "count": 2, "total_count": 2}
    exchange.send_json(
        {"result": OFFERED, "success": True, "errors": [], "messages": [], "result_info": info}
    )


def test_models_are_a_table() -> None:
    with a_peer(offer) as peer:
        result = workerctl("ai", "models", env=peer.environment)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == TABLE


def test_models_are_json_where_asked_for() -> None:
    with a_peer(offer) as peer:
        result = workerctl("ai", "models", "--json", env=peer.environment)
    printed = json.loads(result.stdout)
    assert [model["name"] for model in printed] == [model["name"] for model in OFFERED]
    assert printed[0]["properties"] == OFFERED[0]["properties"]


def test_no_models_is_a_table_without_lines() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send_json({"result": [], "success": True, "errors": [], "messages": []})

    with a_peer(script) as peer:
        result = workerctl("ai", "models", env=peer.environment)
    assert result.stdout == "MODEL  CONTEXT  IN  CACHED  OUT  FEATURES\n"
