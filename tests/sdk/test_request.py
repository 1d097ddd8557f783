"""What goes over the wire for each call."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

import tenantry
from support.answers import a_completion, an_envelope
from tenantry import AI, Completion, InvalidInput, MockTransport


class Recorder:
    """Answers every call, and keeps the last one."""

    def __init__(self) -> None:
        self.request = httpx.Request("GET", "http://nothing.invalid")

    def __call__(self, request: httpx.Request) -> httpx.Response | str:
        self.request = request
        return "text" if json.loads(request.content)["stream"] else an_envelope(a_completion())

    @property
    def body(self) -> Any:
        return json.loads(self.request.content)

    @property
    def timeout(self) -> Any:
        return self.request.extensions["timeout"]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def an_ai(recorder: Recorder, **options: Any) -> AI:
    return AI(
        base_url="http://127.0.0.1:8787/client/v4/",
        account_id="dev",
        api_token="token-of-dev",
        transport=MockTransport(recorder),
        **options,
    )


def test_a_model_is_called_by_its_id(recorder: Recorder) -> None:
    an_ai(recorder).run("@cf/moonshotai/kimi-k2.6", {"prompt": "?"})
    assert recorder.request.method == "POST"
    assert str(recorder.request.url) == (
        "http://127.0.0.1:8787/client/v4/accounts/dev/ai/run/@cf/moonshotai/kimi-k2.6"
    )
    assert recorder.request.headers["authorization"] == "Bearer token-of-dev"
    assert recorder.request.headers["content-type"] == "application/json"
    assert recorder.request.headers["user-agent"].startswith(f"tenantry/{tenantry.__version__} ")


def test_the_inputs_are_the_body(recorder: Recorder) -> None:
    inputs = {"messages": [{"role": "user", "content": "é?"}], "max_tokens": 5, "seed": 7}
    an_ai(recorder).run("kimi-k2.6", inputs)
    assert recorder.body == {**inputs, "stream": False}
    assert "stream" not in inputs


def test_an_answer_goes_back_into_the_messages(recorder: Recorder) -> None:
    ai = an_ai(recorder)
    first = ai.run("kimi-k2.6", {"prompt": "?"})
    ai.run("kimi-k2.6", {"messages": [first.choices[0].message, {"role": "user", "content": "?"}]})
    assert recorder.body["messages"] == [
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "?"},
    ]


@pytest.mark.parametrize(
    ("options", "inputs", "expected"),
    [
        ({"stream": True}, {}, True),
        ({}, {"stream": True}, True),
        ({"stream": True}, {"stream": True}, True),
        ({"stream": False}, {}, False),
        ({}, {"stream": False}, False),
        ({}, {}, False),
        ({"stream": None}, {}, False),
    ],
)
def test_argument_or_input_asks_for_a_stream(
    recorder: Recorder, options: dict[str, Any], inputs: Mapping[str, Any], expected: bool
) -> None:
    answer = an_ai(recorder).run("kimi-k2.6", {"prompt": "?", **inputs}, **options)
    assert isinstance(answer, Completion) is not expected
    assert recorder.body["stream"] is expected
    assert recorder.request.headers["accept"] == (
        "text/event-stream" if expected else "application/json"
    )


def test_contradicting_wishes_for_a_stream_are_refused(recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="stream is False, but"):
        an_ai(recorder).run("kimi-k2.6", {"prompt": "?", "stream": True}, stream=False)


@pytest.mark.parametrize("session", ["Grüße", "a\nb"])
def test_a_session_that_no_header_holds_is_in_the_body(recorder: Recorder, session: str) -> None:
    an_ai(recorder).run("kimi-k2.6", {"prompt": "?"}, session=session)
    assert "x-session-affinity" not in recorder.request.headers
    assert json.loads(recorder.request.content)["prompt_cache_key"] == session


def test_a_session_is_a_header(recorder: Recorder) -> None:
    ai = an_ai(recorder)
    ai.run("kimi-k2.6", {"prompt": "?"}, session="ses_1")
    assert recorder.request.headers["x-session-affinity"] == "ses_1"
    ai.run("kimi-k2.6", {"prompt": "?"})
    assert "x-session-affinity" not in recorder.request.headers


def test_extra_headers_are_sent_and_win(recorder: Recorder) -> None:
    headers = {"X-Trace": "1", "User-Agent": "mine"}
    an_ai(recorder).run("kimi-k2.6", {"prompt": "?"}, extra_headers=headers)
    assert recorder.request.headers["x-trace"] == "1"
    assert recorder.request.headers.get_list("user-agent") == ["mine"]


@pytest.mark.parametrize("model", ["", "a//b", "../kimi", "@cf/..", "a/./b", "/kimi", "kimi/"])
def test_a_model_that_leads_elsewhere_is_refused(recorder: Recorder, model: str) -> None:
    with pytest.raises(InvalidInput, match="model is"):
        an_ai(recorder).run(model, {"prompt": "?"})


def test_odd_characters_stay_inside_their_segment(recorder: Recorder) -> None:
    ai = AI(
        base_url="http://h", account_id="a/b?", api_token="t", transport=MockTransport(recorder)
    )
    ai.run("kimi?x=1#y z", {"prompt": "?"})
    assert recorder.request.url.raw_path == b"/accounts/a%2Fb%3F/ai/run/kimi%3Fx%3D1%23y%20z"


def test_timeouts_are_per_call_else_the_clients(recorder: Recorder) -> None:
    ai = an_ai(recorder, timeout=30)
    ai.run("kimi-k2.6", {"prompt": "?"})
    assert recorder.timeout == {"connect": 5.0, "read": 30, "write": 30, "pool": 30}
    ai.run("kimi-k2.6", {"prompt": "?"}, timeout=2)
    assert recorder.timeout == {"connect": 2, "read": 2, "write": 2, "pool": 2}


def test_ten_minutes_of_silence_are_allowed_by_default_and_any_with_infinity(
    recorder: Recorder,
) -> None:
    an_ai(recorder).run("kimi-k2.6", {"prompt": "?"})
    assert recorder.timeout["read"] == 600
    an_ai(recorder, timeout=math.inf).run("kimi-k2.6", {"prompt": "?"})
    assert recorder.timeout["read"] is None
    assert recorder.timeout["connect"] == 5


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_a_timeout_that_is_none_is_refused(recorder: Recorder, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout is"):
        an_ai(recorder, timeout=timeout)
    with pytest.raises(ValueError, match="timeout is"):
        an_ai(recorder).run("kimi-k2.6", {"prompt": "?"}, timeout=timeout)


def test_inputs_that_are_not_json_are_the_callers_mistake(recorder: Recorder) -> None:
    with pytest.raises(TypeError):
        an_ai(recorder).run("kimi-k2.6", {"prompt": object()})


def test_rejecting_if_busy_is_an_option_beside_others(recorder: Recorder) -> None:
    ai = an_ai(recorder)
    ai.run("kimi-k2.6", {"prompt": "Hi"}, reject_if_busy=True)
    assert recorder.body["options"] == {"rejectIfBusy": True}
    ai.run("kimi-k2.6", {"prompt": "Hi", "options": {"a": 1}}, reject_if_busy=True)
    assert recorder.body["options"] == {"a": 1, "rejectIfBusy": True}
    ai.run("kimi-k2.6", {"prompt": "Hi"})
    assert "options" not in recorder.body
