"""`workerctl models coverage`: a table for people, JSON for programs, a code for scripts."""

from __future__ import annotations

import json
from typing import Any

from support.command_line import workerctl
from support.http_peer import Exchange, a_peer


def an_op(op: str, *, checked: bool = True) -> dict[str, Any]:
    return {
        "node": 0,
        "model": "@cf/moonshotai/kimi-k2.6",
        "phase": "decode",
        "op": op,
        "format": "fp8",
        "device": "cpu",
        "checked": checked,
    }


def answering(*ops: dict[str, Any], all_checked: bool, silent: int = 0) -> Any:
    result = {"all_checked": all_checked, "nodes_without_answer": silent, "ops": list(ops)}

    def script(exchange: Exchange) -> None:
        assert exchange.path.endswith("/ai/coverage")
        exchange.send_json({"result": result, "success": True, "errors": [], "messages": []})

    return script


def test_every_op_is_a_line() -> None:
    with a_peer(answering(an_op("append"), an_op("read"), all_checked=True)) as peer:
        result = workerctl("models", "coverage", env=peer.environment)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "MODEL                     PHASE   OP      FORMAT  DEVICE  CHECK\n"
        "@cf/moonshotai/kimi-k2.6  decode  append  fp8     cpu     on\n"
        "@cf/moonshotai/kimi-k2.6  decode  read    fp8     cpu     on\n"
    )


def test_a_check_that_is_off_is_a_failure() -> None:
    script = answering(an_op("read", checked=False), all_checked=False, silent=1)
    with a_peer(script) as peer:
        result = workerctl("models", "coverage", env=peer.environment)
    assert result.exit_code == 1
    assert "OFF" in result.stdout
    assert result.stderr == "1 node(s) have not answered\n"


def test_the_report_is_json_where_asked_for() -> None:
    with a_peer(answering(an_op("append"), all_checked=True)) as peer:
        result = workerctl("models", "coverage", "--json", env=peer.environment)
    assert json.loads(result.stdout)["ops"] == [an_op("append")]
