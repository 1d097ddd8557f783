"""Workers that write what they like on their own stream, or ask bindings for what is not theirs.

Each is the body of a handler. `raw` writes bytes past the guest, `frame` makes one of its fields, and
`own` is the invocation that runs. Where the runtime ends the isolate the outcome is a violation;
where it may go on the response says `went on`.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import msgspec, struct
from tenantry.workers._host import current_id

def frame(*fields):
    encoded = msgspec.msgpack.encode(fields)
    return struct.pack('>I', len(encoded)) + encoded

def raw(data):
    while data:
        try:
            data = data[os.write(3, data):]
        except BlockingIOError:
            time.sleep(0.001)

async def refused(call):
    try:
        return Response('GOT ' + repr(await call)[:500])
    except Exception as error:
        return Response(f'{type(error).__name__}: {error}'[:500])
"""

VIOLATION = "protocolViolation"
WENT_ON = "went on"


@dataclass(frozen=True, kw_only=True)
class HostileWorker:
    """A handler's body, and its outcome, or what its response says."""

    body: str
    expected: str
    """A regular expression."""


def forged(body: str, expected: str = VIOLATION) -> HostileWorker:
    """Write, then wait to be ended, or answer."""
    end = "await asyncio.sleep(30)" if expected == VIOLATION else f"return Response({WENT_ON!r})"
    return HostileWorker(body=f"own = current_id()\n{body}\n{end}", expected=expected)


FORGING = {
    "answer another's invocation": forged("raw(frame(22, own + 1000, 200, [], b'x', None))"),
    "fail another's invocation": forged("raw(frame(24, own + 1000, 'E', 'x', ''))"),
    "finish another's invocation": forged("raw(frame(25, own + 1000))"),
    "finish before it answers": forged("raw(frame(25, own))"),
    "answer twice": forged("raw(frame(22, own, 200, [], b'x', None) * 2)", f"x|{VIOLATION}"),
    "answer a fetch as if it were a call": forged("raw(frame(23, own, 1))"),
    "log for another's invocation": forged("raw(frame(28, own + 1000, 'log', 'x', 0))"),
    "call for another's invocation": forged("raw(frame(26, 1, own + 1000, 'AI', 'run', [], None))"),
    "repeat a call": forged("raw(frame(26, 900, own, 'AI', 'run', [], None) * 2)"),
    "forget a call that never was": forged("raw(frame(27, 999999))"),
    "load itself anew": forged("raw(frame(20, {}, 1.0))"),
    "fail to load after it was": forged("raw(frame(21, 'E', 'x', '', 0, ''))"),
    "speak as the runtime: a result": forged("raw(frame(6, 1, 'x'))"),
    "speak as the runtime: a load": forged("raw(frame(1, 'entry.py', [], False))"),
    "speak as the runtime: a request": forged("raw(frame(2, 1, '', 'GET', 'http://x/', []))"),
    "send on a stream that is not open": forged("raw(frame(40, 777, b'x'))"),
    "send on the runtime's stream": forged("raw(frame(40, 2, b'x'))"),
    "end a stream that is not open": forged("raw(frame(41, 777))"),
    "give credit to itself": forged("raw(frame(43, 777, 1024))"),
    "give credit for more than there is": forged("raw(frame(43, 2, 1 << 40))"),
    "answer by a stream of nobody's": forged("raw(frame(22, own, 200, [], None, 4444))"),
    "answer with two bodies": forged("raw(frame(22, own, 200, [], b'x', 903))"),
    "use a stream again": forged(
        "raw(frame(26, 900, own, 'FETCH', 'fetch', [], 905))\n"
        "raw(frame(26, 901, own, 'FETCH', 'fetch', [], 905))"
    ),
    "split headers": forged("raw(frame(22, own, 200, [('x', 'a\\r\\nset-cookie: b')], b'', None))"),
    "name a header wrongly": forged("raw(frame(22, own, 200, [('x: y', 'a')], b'', None))"),
    "never end twice": forged("raw(frame(29, own, 'x', 1) * 2)", f"neverResponds|{VIOLATION}"),
    "break a stream that the runtime does not have": forged("raw(frame(42, 7776, ''))"),
}

MALFORMED = {
    "a length of four gigabytes": forged("raw(b'\\xff\\xff\\xff\\xff')"),
    "a length over the limit": forged("raw(struct.pack('>I', (1 << 20) + 1))"),
    "noise": forged("raw(struct.pack('>I', 64) + os.urandom(63) + b'\\xc1')"),
    "nothing": forged("raw(struct.pack('>I', 0))"),
    "a number that is no message": forged("raw(frame(99, 1))"),
    "a name for a number": forged("raw(frame('Respond', 1))"),
    "no number": forged("raw(struct.pack('>I', 1) + b'\\x90')"),
    "a map": forged("raw(struct.pack('>I', 1) + b'\\x80')"),
    "fields missing": forged("raw(frame(22, own))"),
    "fields of other types": forged("raw(frame(22, 'x', 'y', 'z'))"),
    "a number below zero": forged("raw(frame(25, -1))"),
    "a number over 64 bits' half": forged("raw(frame(25, (1 << 64) - 1))"),
    "a status that is none": forged("raw(frame(22, own, 999, [], b'', None))"),
    "ten thousand headers": forged("raw(frame(22, own, 200, [('a', 'b')] * 10000, b'', None))"),
    "a body over the limit": forged(
        "body = msgspec.msgpack.encode([22, own, 200, [], b'x' * ((1 << 20) - 5), None])\n"
        "raw(struct.pack('>I', len(body)) + body)"
    ),
    "text that is no UTF-8": forged(
        "raw(struct.pack('>I', 10) + b'\\x95\\x1c\\x00\\xa3log\\xa2\\xff\\xfe\\x00')"
    ),
    "an array that says it is endless": forged(
        "raw(struct.pack('>I', 12) + b'\\x96\\x1a\\x01\\x00\\xa1A\\xa1B\\xdd\\xff\\xff\\xff')"
    ),
    "arguments nested without end": forged(
        "inner = b'\\x91' * 500000 + b'\\xc0'\n"
        "body = b'\\x96\\x1a\\xcd\\x03\\x84\\x00\\xa2AI\\xa3run' + inner\n"
        "raw(struct.pack('>I', len(body)) + body)"
    ),
    "an extension": forged(
        "body = b'\\x96\\x1a\\xcd\\x03\\x84\\x00\\xa2AI\\xa3run\\xd4\\x05\\x00'\n"
        "raw(struct.pack('>I', len(body)) + body)"
    ),
    "a log line over the limit": forged("raw(frame(28, own, 'log', 'x' * 20000, 0))"),
    "a level over the limit": forged("raw(frame(28, own, 'x' * 1000, 'x', 0))"),
    "half a frame, and the end": HostileWorker(
        body="raw(struct.pack('>I', 100) + b'x')\nos._exit(0)",
        expected="crashed|exception|protocolViolation",
    ),
    "a frame byte by byte": forged(
        "for byte in frame(28, own, 'log', 'x' * 200, 0): raw(bytes([byte]))", WENT_ON
    ),
    "a flood of log lines": forged(
        "for _ in range(2000): raw(frame(28, own, 'log', 'x' * 1000, 0))",
        f"{WENT_ON}|{VIOLATION}|exceededCpu",
    ),
    "a flood of calls": forged(
        "for number in range(1000, 6000): raw(frame(26, number, own, 'AI', 'no', [], None))",
        f"{WENT_ON}|{VIOLATION}|exceededCpu",
    ),
    "calls with large arguments": forged(
        "for number in range(1000, 1020): raw(frame(26, number, own, 'AI', 'no', [b'x' * 900000], None))",
        f"{WENT_ON}|{VIOLATION}|exceededCpu",
    ),
}

_FETCH = "return await refused(fetch({url!r}))"


def _fetched(url: str) -> HostileWorker:
    return HostileWorker(
        body=_FETCH.format(url=url), expected=r"(?!GOT)\w*(Error|Denied|Refused)\w*: .*"
    )


DEPUTY = {
    "fetch from this machine": _fetched("http://127.0.0.1:{port}/"),
    "fetch from this machine by name": _fetched("http://localhost:{port}/"),
    "fetch from this machine by IPv6": _fetched("http://[::1]:{port}/"),
    "fetch from this machine by a mapped address": _fetched("http://[::ffff:127.0.0.1]:{port}/"),
    "fetch from this machine by a number": _fetched("http://2130706433:{port}/"),
    "fetch from any address": _fetched("http://0.0.0.0:{port}/"),
    "fetch the cloud's metadata": _fetched("http://169.254.169.254/latest/meta-data/"),
    "fetch from a private network": _fetched("http://10.0.0.1/"),
    "fetch a file": _fetched("file:///etc/passwd"),
    "fetch by another protocol": _fetched("gopher://127.0.0.1:{port}/"),
    "call a binding that it does not have": HostileWorker(
        body="raw(frame(26, 900, current_id(), 'THEIRS', 'get', ['secret'], None))\nreturn Response('went on')",
        expected=WENT_ON,
    ),
    "call a method that a binding does not have": HostileWorker(
        body="raw(frame(26, 900, current_id(), 'AI', '__class__', [], None))\nreturn Response('went on')",
        expected=WENT_ON,
    ),
    "read another tenant's key": HostileWorker(
        body="return await refused(self.env.KV.get('theirs'))", expected="GOT None"
    ),
    "read another tenant's key by its namespace": HostileWorker(
        body="return await refused(self.env.KV.get('namespace-of-the-neighbor/theirs'))",
        expected="GOT None",
    ),
    "list another tenant's keys": HostileWorker(
        body="return await refused(self.env.KV.list(prefix=''))", expected=r"GOT (?!.*theirs).*"
    ),
    "read another tenant's key by a binding that should not be": HostileWorker(
        body="return await refused(self.env.STOLEN.get('theirs'))",
        expected=r"(?!GOT)\w+: .*",
    ),
    "call another tenant's worker": HostileWorker(
        body="return await refused(self.env.SERVICE.fetch('http://x/'))",
        expected=r"(?!GOT)\w+: .*",
    ),
    "run as another tenant": HostileWorker(
        body="raw(frame(26, 900, current_id(), 'AI', 'run', ['@cf/moonshotai/kimi-k2.6', "
        "{'prompt': 'x', 'account': 'neighbor'}, {'extraHeaders': {'authorization': 'Bearer x'}}], None))\n"
        "return Response('went on')",
        expected=WENT_ON,
    ),
}

KINDS = {"forging": FORGING, "malformed": MALFORMED, "deputy": DEPUTY}
WORKERS = {
    f"{kind}: {name}": worker for kind, of_kind in KINDS.items() for name, worker in of_kind.items()
}
