"""`workerctl tenant`, `token`, `plan` and `incidents`, on a store."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from support.command_line import workerctl
from support.operating import Operator
from tenantry_cli.incidents import KINDS
from tenantry_cli.token import SCOPES
from tenantry_runtime.tenancy import (
    Authenticator,
    IncidentKind,
    IncidentRecord,
    Principal,
    Scope,
    open_store,
)

GLM = "@cf/zai-org/glm-5.2"

LOST = IncidentRecord(
    id="cafe" * 8,
    kind=IncidentKind.NODE_LOST,
    began_ms=1_900_000_000_000,
    seen_ms=1_900_000_001_000,
    edge="here:8787",
    node="unix:node",
    tenants=("acme", "bolt"),
    request_ids=("r1", "r2"),
    trace_ids=("4bf92f3577b34da6a3ce929d0e0e4736",),
    detail="closed",
    facts={"unfinished": 2, "carried": 1},
)


@pytest.fixture
def operator(database_url: str | None, tmp_path: Path) -> Operator:
    return Operator(state_dir=tmp_path, url=database_url)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Operator:
    return Operator(state_dir=tmp_path)


def authenticated(operator: Operator, secret: str, account: str) -> Principal:
    async def authenticate() -> Principal:
        async with open_store(operator.state_dir, url=operator.url) as store:
            return await Authenticator(store).authenticate(secret, account, Scope.RUN)

    return anyio.run(authenticate)


def test_a_tenant_calls_with_its_token_under_its_terms(operator: Operator) -> None:
    operator.does("tenant", "create", "acme", "--plan", "standard", "--weight", "2")
    secret = operator.does("token", "create", "acme").strip()

    principal = authenticated(operator, secret, "acme")

    assert principal.scopes == {"run"}
    assert principal.plan.share.weight == 2
    assert principal.plan.quota.requests_per_minute == 300


def test_every_term_has_its_option(operator: Operator) -> None:
    options = {
        "--requests-per-minute": "1",
        "--tokens-per-minute": "2",
        "--concurrent-requests": "3",
        "--queue-depth": "0",
        "--context-tokens": "5",
        "--daily-neurons": "6.5",
        "--weight": "7",
        "--guaranteed": "0.125",
        "--ceiling": "0.5",
    }
    operator.does("plan", "create", "team", *[text for pair in options.items() for text in pair])

    assert operator.json("plan", "show", "team")["terms"] == {
        "quota": {
            "requests_per_minute": 1,
            "tokens_per_minute": 2,
            "concurrent_requests": 3,
            "queue_depth": 0,
            "context_tokens": 5,
        },
        "daily_neurons": 6.5,
        "share": {"weight": 7.0, "guaranteed": 0.125, "ceiling": 0.5},
    }


def test_limits_are_raised_lifted_and_given_back_to_the_plan(on_sqlite: Operator) -> None:
    def limit() -> object:
        shown = on_sqlite.json("tenant", "show", "acme")
        return shown["terms"].get("quota", {}).get("requests_per_minute")

    on_sqlite.does("tenant", "create", "acme", "--plan", "standard")
    assert limit() == 300
    for given, expected in (("60", 60), ("unlimited", None), ("plan", 300)):
        on_sqlite.does("tenant", "set", "acme", "--requests-per-minute", given)
        assert limit() == expected
    assert on_sqlite.json("tenant", "show", "acme")["exceptions"] == {}


def test_an_exception_for_a_model_is_kept_by_its_canonical_id(on_sqlite: Operator) -> None:
    on_sqlite.does("tenant", "create", "acme", "--requests-per-minute", "60")
    on_sqlite.does("tenant", "set", "acme", "--model", "glm-5.2", "--queue-depth", "1")

    shown = on_sqlite.json("tenant", "show", "acme")
    assert shown["exceptions"]["models"] == {GLM: {"queue_depth": 1}}
    assert shown["terms"]["models"] == {GLM: {"requests_per_minute": 60, "queue_depth": 1}}

    on_sqlite.does("tenant", "set", "acme", "--drop-model", GLM)
    assert "models" not in on_sqlite.json("tenant", "show", "acme")["exceptions"]


def test_a_table_says_what_is_the_tenants_own(on_sqlite: Operator) -> None:
    on_sqlite.does("tenant", "create", "acme", "--plan", "standard", "--queue-depth", "4")

    lines = on_sqlite.does("tenant", "show", "acme").splitlines()

    assert "requests per minute        300  plan" in lines
    assert "queue depth                  4  tenant" in lines
    assert "tokens per minute    unlimited  plan" in lines


def test_tenants_are_listed_with_plan_and_state(operator: Operator) -> None:
    operator.does("tenant", "create", "beta", "--name", "Beta Inc", "--plan", "free")
    operator.does("tenant", "create", "acme", "--weight", "2")
    operator.does("tenant", "create", "gone")
    operator.does("tenant", "suspend", "beta")
    operator.does("tenant", "delete", "gone", "--yes")

    states = {each["id"]: each["state"] for each in operator.json("tenant", "list", "--all")}
    assert states == {"acme": "active", "beta": "suspended", "gone": "deleted"}
    header, *rows = operator.does("tenant", "list").splitlines()
    assert re.split(r" {2,}", header) == ["TENANT", "NAME", "PLAN", "STATE", "CREATED"]
    assert [re.split(r" {2,}", row)[:4] for row in rows] == [
        ["acme", "acme", "unlimited, with exceptions", "active"],
        ["beta", "Beta Inc", "free", "suspended"],
    ]

    operator.does("tenant", "resume", "beta")
    assert operator.json("tenant", "show", "beta")["state"] == "active"


def test_a_token_is_shown_once_and_alone_on_standard_output(operator: Operator) -> None:
    operator.does("tenant", "create", "acme")

    result = operator("token", "create", "acme", "--name", "ci", "--expires", "90d")

    secret = result.stdout.removesuffix("\n")
    assert re.fullmatch(r"tenantry_[\w-]{43}", secret)
    assert secret not in result.stderr
    [listed] = operator.json("token", "list", "acme")
    assert (listed["name"], listed["scopes"], listed["last_used"]) == ("ci", ["run"], None)
    ends = datetime.fromisoformat(listed["expires"]) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < ends <= timedelta(days=90)
    assert secret not in operator.does("token", "list")


def test_a_rotated_token_has_a_successor_and_ends(operator: Operator) -> None:
    operator.does("tenant", "create", "acme")
    old = operator.json("token", "create", "acme", "--scope", "deploy", "--scope", "run")

    new = operator.json("token", "rotate", old["id"], "--grace", "1h")

    assert new["scopes"] == ["run", "deploy"]
    for secret in (old["token"], new["token"]):
        assert authenticated(operator, secret, "acme").tenant == "acme"
    expires = {each["id"]: each["expires"] for each in operator.json("token", "list")}
    assert expires[new["id"]] is None
    assert datetime.fromisoformat(expires[old["id"]]) - datetime.now(UTC) <= timedelta(hours=1)

    operator.does("token", "revoke", old["id"])
    assert [each["id"] for each in operator.json("token", "list")] == [new["id"]]


def test_plans_are_listed_changed_and_deleted(operator: Operator) -> None:
    operator.does("plan", "create", "team", "--requests-per-minute", "60")
    operator.does("plan", "set", "team", "--model", "glm-5.2", "--concurrent-requests", "4")
    operator.does("plan", "set", "team", "--requests-per-minute", "unlimited")

    assert operator.json("plan", "show", "team")["terms"]["models"] == {
        GLM: {"requests_per_minute": 60, "concurrent_requests": 4}
    }
    assert [each["id"] for each in operator.json("plan", "list")] == [
        "free",
        "standard",
        "team",
        "unlimited",
    ]
    assert "REQUESTS/MIN" in operator.does("plan", "list")

    operator.does("plan", "delete", "team", "--yes")
    assert "'team'" in operator.fails("plan", "show", "team")


def test_what_cannot_be_undone_is_asked_first(on_sqlite: Operator) -> None:
    on_sqlite.does("tenant", "create", "acme")
    on_sqlite.does("plan", "create", "team")

    for what, name in (("tenant", "acme"), ("plan", "team")):
        # there is nobody to ask
        refused = on_sqlite(what, "delete", name, stdin="y\n")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "say --yes" in refused.stderr
        on_sqlite.does(what, "show", name)
    assert on_sqlite.json("tenant", "show", "acme")["state"] == "active"

    on_sqlite.does("tenant", "delete", "acme", "--yes")
    assert on_sqlite.json("tenant", "show", "acme")["state"] == "deleted"


def test_promises_of_more_than_there_is_are_warned_of(on_sqlite: Operator) -> None:
    assert on_sqlite("tenant", "create", "a", "--guaranteed", "0.6").stderr == ""

    result = on_sqlite("tenant", "create", "b", "--guaranteed", "0.6")

    assert result.exit_code == 0
    assert "1.2 of every pool" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tenant", "create", "acme"], "'acme' exists already"),
        (["tenant", "create", "Acme"], "'Acme' is no id"),
        (["tenant", "create", "b", "--plan", "gold"], "no plan 'gold'"),
        (["tenant", "create", "b", "--guaranteed", "0.5", "--ceiling", "0.1"], "share.guaranteed"),
        (["tenant", "set", "acme", "--model", "glm-5", "--queue-depth", "1"], "glm-5.2"),
        (["tenant", "show", "nobody"], "no account 'nobody'"),
        (["tenant", "delete", "nobody", "--yes"], "no account 'nobody'"),
        (["token", "create", "nobody"], "no account 'nobody'"),
        (["token", "list", "nobody"], "no account 'nobody'"),
        (["incidents", "list", "--tenant", "nobody"], "no account 'nobody'"),
        (["token", "rotate", "tok_1"], "tok_1"),
        (["token", "revoke", "tok_1"], "tok_1"),
        (["plan", "create", "free"], "'free' exists already"),
        (["plan", "set", "gold", "--weight", "2"], "no plan 'gold'"),
        (["plan", "delete", "unlimited", "--yes"], "not deleted"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_what_is_impossible_is_said_in_one_line(
    on_sqlite: Operator, arguments: list[str], problem: str
) -> None:
    on_sqlite.does("tenant", "create", "acme")

    assert problem in on_sqlite.fails(*arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tenant", "set", "acme"], "say what to change"),
        (["plan", "set", "free"], "say what to change"),
        (["tenant", "set", "acme", "--weight", "unlimited"], "a number from 0 up, or plan"),
        (["tenant", "set", "acme", "--queue-depth", "-1"], "a whole number from 0 up"),
        (["plan", "set", "free", "--queue-depth", "plan"], "or unlimited"),
        (["plan", "set", "free", "--daily-neurons", "nan"], "a number from 0 up"),
        (["plan", "set", "free", "--model", "glm-5.2"], "--model needs a limit"),
        (["plan", "set", "free", "--model", "glm-5.2", "--weight", "2"], "leave out --model"),
        (["token", "create", "acme", "--expires", "soon"], "15m, 12h or 90d"),
        (["token", "create", "acme", "--scope", "root"], "root"),
        (["incidents", "list", "--kind", "fire"], "node_lost"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_refused(
    on_sqlite: Operator, arguments: list[str], problem: str
) -> None:
    assert problem in on_sqlite.fails(*arguments, code=2)


def test_a_store_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    operator = Operator(state_dir=tmp_path / "typo")

    assert "no store" in operator.fails("tenant", "list")
    assert not (tmp_path / "typo").exists()


def test_a_database_that_does_not_answer_is_said_without_its_password(tmp_path: Path) -> None:
    operator = Operator(state_dir=tmp_path, url="postgresql://u:s3cret@127.0.0.1:1/db")

    line = operator.fails("tenant", "list")

    assert "postgresql://u@127.0.0.1:1/db cannot be reached" in line
    assert "s3cret" not in line


@pytest.mark.postgresql
def test_the_store_may_be_named_by_the_environment(postgresql_url: str, tmp_path: Path) -> None:
    Operator(state_dir=tmp_path, url=postgresql_url).does("tenant", "create", "acme")

    result = workerctl("tenant", "list", env={"TENANTRY_STORE": postgresql_url})

    assert "acme" in result.stdout


def kept(operator: Operator, *records: IncidentRecord) -> None:
    async def keep() -> None:
        async with open_store(operator.state_dir, url=operator.url) as store:
            await store.incidents.record(records)

    anyio.run(keep)


def test_incidents_are_listed_and_shown(operator: Operator) -> None:
    operator.does("tenant", "create", "acme")
    operator.does("tenant", "create", "bolt")
    assert operator.does("incidents", "list") == "none\n"
    storm = replace(
        LOST,
        id="beef" * 8,
        kind=IncidentKind.QUOTA_STORM,
        began_ms=LOST.began_ms - 60_000,
        node="",
        tenants=("bolt",),
    )
    kept(operator, LOST, storm)

    header, *rows = operator.does("incidents", "list").splitlines()
    assert re.split(r" {2,}", header)[:4] == ["INCIDENT", "BEGAN", "ENDED", "KIND"]
    assert [re.split(r" {2,}", row) for row in rows] == [
        ["cafecafecafe", "2030-03-17 17:46", "-", "node_lost", "unix:node", "acme, bolt", "closed"],
        ["beefbeefbeef", "2030-03-17 17:45", "-", "quota_storm", "-", "bolt", "closed"],
    ]
    for options, found in (
        (["--tenant", "acme"], [LOST.id]),
        (["--kind", "quota_storm"], [storm.id]),
        (["--limit", "1"], [LOST.id]),
        (["--kind", "drain"], []),
    ):
        listed = operator.json("incidents", "list", *options)
        assert [each["id"] for each in listed] == found

    assert operator.json("incidents", "show", "cafe") == {
        "id": LOST.id,
        "kind": "node_lost",
        "began": "2030-03-17T17:46:40.000Z",
        "seen": "2030-03-17T17:46:41.000Z",
        "ended": None,
        "edge": "here:8787",
        "node": "unix:node",
        "model": "",
        "detail": "closed",
        "facts": {"unfinished": 2, "carried": 1},
        "tenants": ["acme", "bolt"],
        "requests": ["r1", "r2"],
        "traces": ["4bf92f3577b34da6a3ce929d0e0e4736"],
    }
    shown = [
        re.split(r" {2,}", line)
        for line in operator.does("incidents", "show", LOST.id).splitlines()
    ]
    assert ["kind", "node_lost"] in shown and ["unfinished", "2"] in shown
    at = shown.index(["requests", "r1"])
    assert shown[at + 1] == ["", "r2"]


def test_incidents_are_looked_for_as_far_back_as_is_said(on_sqlite: Operator) -> None:
    now_ms = time.time_ns() // 1_000_000
    on_sqlite.does("tenant", "create", "acme")
    hours = [replace(LOST, id=f"{hour}", began_ms=now_ms - hour * 3_600_000) for hour in (1, 3)]
    kept(on_sqlite, *hours)

    assert [each["id"] for each in on_sqlite.json("incidents", "list", "--since", "2h")] == ["1"]


@pytest.mark.parametrize(
    ("incident_id", "problem"),
    [
        ("cafebabe", "did you mean cafecafe?"),
        ("xyz", "`workerctl incidents list`"),
        ("", "no incident ''"),
        ("d00d", "several incidents"),
    ],
)
def test_an_incident_that_is_not_there_is_said_with_its_nearest(
    on_sqlite: Operator, incident_id: str, problem: str
) -> None:
    on_sqlite.does("tenant", "create", "acme")
    kept(on_sqlite, LOST, replace(LOST, id="d00d1"), replace(LOST, id="d00d2"))

    assert problem in on_sqlite.fails("incidents", "show", incident_id)


def test_the_kinds_that_can_be_asked_for_are_those_that_there_are() -> None:
    assert list(KINDS) == [str(kind) for kind in IncidentKind]


def test_the_scopes_that_can_be_asked_for_are_those_that_there_are() -> None:
    assert list(SCOPES) == [str(scope) for scope in Scope]
