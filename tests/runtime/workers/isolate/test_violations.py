"""What an isolate may not say: each ends it, by name, and fails whoever waits for it."""

from __future__ import annotations

import pytest

from support.guests import Heard, an_invocation
from support.hostile_isolates import BODY, FETCH, RPC, framed, invaded
from tenantry_runtime.workers.frames import (
    INITIAL_CREDIT,
    MAX_DATA_BYTES,
    MAX_FRAME_BYTES,
    Break,
    Busy,
    Call,
    Credit,
    Data,
    End,
    Failed,
    Finished,
    Forget,
    Loaded,
    LoadFailed,
    Log,
    NeverEnds,
    Respond,
    Returned,
)
from tenantry_runtime.workers.guest.wire import HEADER
from tenantry_runtime.workers.isolate import EndingKind, IsolateEnded
from tenantry_runtime.workers.isolate.logs import SPARE_LINES

STREAM = 1


def frame_of(content: bytes) -> bytes:
    return HEADER.pack(len(content)) + content


def respond(**fields: object) -> Respond:
    return Respond(FETCH, **{"status": 200, "headers": [], **fields})  # type: ignore[arg-type]


STREAMED = respond(body_stream=STREAM)
FULL = [Data(STREAM, bytes(MAX_DATA_BYTES))] * (INITIAL_CREDIT // MAX_DATA_BYTES)

VIOLATIONS: dict[str, tuple[bytes, str]] = {
    "a length beyond all frames": (HEADER.pack(MAX_FRAME_BYTES + 1), "a frame of 1048577 bytes"),
    "no MessagePack": (frame_of(b"\xc1"), "does not decode"),
    "an empty frame": (frame_of(b""), "does not decode"),
    "a number of the runtime's": (framed([2, 1, "", "GET", "", []]), "does not decode"),
    "a number of nobody's": (framed([99]), "does not decode"),
    "a field of another type": (framed([22, FETCH, "200", []]), "does not decode"),
    "a field too few": (framed([22, FETCH]), "does not decode"),
    "more bytes than the frame's": (frame_of(b"\x92\x19\x01\x00"), "does not decode"),
    "an array of four billion": (frame_of(b"\x93\x17\x02\xdd\xff\xff\xff\xff"), "does not decode"),
    "a value without a bottom": (frame_of(b"\x93\x17\x02" + b"\x91" * 100_000), "recursion"),
    "text that is none": (frame_of(b"\x94\x1c\x00\xa3log\xa1\xff"), "does not decode"),
    "a load that nobody asked for": (framed(Loaded({}, 1.0)), "nothing was being loaded"),
    "a failed load of that kind": (framed(LoadFailed("E", "")), "nothing was being loaded"),
    "a response for nobody": (framed(Respond(9, 200, [])), "invocation 9, which is not open"),
    "a second response": (framed(respond(), respond()), "answered before"),
    "a response to a call": (framed(Respond(RPC, 200, [])), "which is no fetch"),
    "a value for a fetch": (framed(Returned(FETCH)), "which is a fetch"),
    "a second value": (framed(Returned(RPC), Returned(RPC)), "answered before"),
    "a status that is none": (framed(respond(status=99)), "does not decode"),
    "a header of two lines": (framed(respond(headers=[("x", "a\r\nb: c")])), "no way to write"),
    "a header's name of two": (framed(respond(headers=[("x: y\r\nz", "")])), "no way to write"),
    "a header beyond a byte's characters": (
        framed(respond(headers=[("x", "\N{EURO SIGN}")])),
        "no way to write",
    ),
    "two bodies": (framed(respond(body=b"x", body_stream=STREAM)), "two bodies"),
    "an end before an answer": (framed(Finished(FETCH)), "not answered"),
    "a second end": (framed(Returned(RPC), Finished(RPC), Finished(RPC)), "not open"),
    "an end before a body's": (framed(STREAMED, Finished(FETCH)), "before its body's end"),
    "a failure after a whole response": (framed(respond(), Failed(FETCH, "E", "")), "had ended"),
    "a second failure": (framed(*[Failed(FETCH, "E", "")] * 2), "had ended"),
    "bytes of no stream": (framed(Data(STREAM, b"x")), "no stream 1"),
    "bytes of the runtime's stream": (framed(Data(BODY, b"x")), "no stream 2"),
    "bytes beyond the credit": (framed(STREAMED, *FULL, Data(STREAM, b"x")), "beyond its credit"),
    "no bytes": (framed(STREAMED, Data(STREAM, b"")), "an empty piece"),
    "bytes after the end": (framed(STREAMED, End(STREAM), Data(STREAM, b"x")), "no stream 1"),
    "a second end of a stream": (framed(STREAMED, End(STREAM), End(STREAM)), "no stream 1"),
    "a break of no stream": (framed(Break(7)), "no stream 7"),
    "a break of none of the runtime's": (framed(Break(4)), "no stream 4"),
    "a stream that is not new": (
        framed(STREAMED, Call(1, 0, "FETCH", "fetch", [], STREAM)),
        "stream 1 after stream 1",
    ),
    "a body that was never sent": (framed(respond(body_stream=4)), "no stream 4"),
    "a body of number none": (framed(respond(body_stream=0)), "no stream 0"),
    "a stream handed on after it was read": (
        framed(Credit(BODY, 1), respond(body_stream=BODY)),
        "after it had begun",
    ),
    "credit for its own stream": (framed(Credit(STREAM, 1)), "isolate's own"),
    "credit for no stream": (framed(Credit(4, 1)), "no stream 4"),
    "no credit": (framed(Credit(BODY, 0)), "does not decode"),
    "credit without end": (framed(*[Credit(BODY, 1 << 30)] * 3), "was given credit"),
    "a call for nobody": (framed(Call(1, 9, "B", "m", [])), "invocation 9, which is not open"),
    "a call that is not new": (framed(*[Call(1, 0, "B", "m", [])] * 2), "call 1 after call 1"),
    "a call of number none": (framed(Call(0, 0, "B", "m", [])), "call 0 after call 0"),
    "forgetting what was not called": (framed(Forget(1)), "no call 1"),
    "more lines than an invocation has": (
        framed(Log(FETCH, "log", "")) * (SPARE_LINES + 1),
        "65 lines of invocation 1",
    ),
    "a line for nobody": (framed(Log(9, "log", "")), "invocation 9, which is not open"),
    "a line of no level": (framed(Log(0, "fatal", "")), "level 'fatal'"),
    "a line after less than none": (framed(Log(0, "log", "", -1)), "-1 that were dropped"),
    "giving back what has begun": (
        framed(Log(FETCH, "log", ""), Busy(0, "", 0, 2, [FETCH])),
        "gives back invocation 1",
    ),
    "giving back what has been read of": (
        framed(Credit(BODY, 1), Busy(0, "", 0, 2, [FETCH])),
        "gives back invocation 1",
    ),
    "never ending twice": (framed(*[NeverEnds(FETCH, "", 0)] * 2), "second time"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", VIOLATIONS)
async def test_what_no_isolate_says_ends_it(name: str) -> None:
    said, expected = VIOLATIONS[name]
    async with invaded() as at:
        await at.peer.write(said)
        await at.isolate.ended.wait()
        assert at.isolate.ending is not None
        assert at.isolate.ending.kind is EndingKind.VIOLATION
        assert expected in at.isolate.ending.message
        at.fetching.release.set()
        await at.fetching.is_over.wait()
        with pytest.raises(IsolateEnded):
            await at.isolate.rpc("method", [], {}, an_invocation(), Heard())
    assert (at.fetching.heard.num_finished, at.body.is_closed) == (1, True)
    assert at.isolate.statistics().num_invocations == at.isolate.statistics().num_streams == 0
