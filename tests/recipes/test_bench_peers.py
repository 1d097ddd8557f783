from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import Tokenizer

from support.http_peer import Exchange, a_peer
from tenantry_recipes.bench.contender import BenchPrompt
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.load import Load
from tenantry_recipes.bench.peers.__main__ import (
    NUM_CHECKED,
    Launch,
    Options,
    Report,
    Row,
    check_lengths,
    check_same_work,
    compare,
    layout,
    num_requests,
)
from tenantry_recipes.bench.peers.agreement import Agreement, check_agreement
from tenantry_recipes.bench.peers.checkpoint import (
    byte_level,
    ensure_checkpoints,
    merges_of,
    mute,
)
from tenantry_recipes.bench.peers.servers import Server, completion_request
from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.stream_client import StreamedAnswer, StreamRequest
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_runtime.core import RenderOptions
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.text import load_text
from tenantry_runtime.text.kimi_tokenizer import KimiTokenizer

PROMPT = BenchPrompt(token_ids=(3, 4, 5), messages=(), options=RenderOptions())


@pytest.fixture(scope="module")
def kimi() -> KimiTokenizer:
    return KimiTokenizer.load(checkpoint_directory("kimi-k2.6-nano"))


@pytest.fixture(scope="module")
def full(kimi: KimiTokenizer) -> Tokenizer:
    return byte_level(kimi, kimi.vocab_size)


def a_load(prompt_tokens: int, completion_tokens: int) -> Load:
    answer = StreamedAnswer(
        sent_s=1.0,
        text_s=(1.5, 2.0),
        text="Hello",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )
    return Load(started_s=1.0, total_s=1.0, answers=(answer,))


def an_answer(text: str) -> StreamedAnswer:
    """An answer of five tokens."""
    return StreamedAnswer(
        sent_s=0.0, text_s=(1.0,), text=text, prompt_tokens=3, completion_tokens=5
    )


def answer_by_name(exchange: Exchange) -> None:
    """The server named vllm answers otherwise than the others."""
    inputs = exchange.inputs
    exchange.start_stream()
    text = "other text" if inputs["server"] == "vllm" else f"text of {inputs['prompt']}"
    exchange.send_event({"choices": [{"text": text}]})
    usage = {"prompt_tokens": 3, "completion_tokens": inputs["tokens"]}
    exchange.send_event({"choices": [], "usage": usage})
    exchange.end_stream()


def a_server(name: str, port: int) -> Server:
    """A server that is told who it is and the first id of each prompt."""

    def request(prompt: BenchPrompt, num_tokens: int) -> StreamRequest:
        inputs = {"server": name, "prompt": prompt.token_ids[0], "tokens": num_tokens}
        body = json.dumps(inputs).encode()
        return StreamRequest(host="127.0.0.1", port=port, path="/", body=body)

    return Server(request=request, start_s=0.0, peak_bytes=lambda: 0)


def test_merges_are_recovered_from_ranks() -> None:
    tokens = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b"abab"]
    ranks = {token: rank for rank, token in enumerate(tokens)}

    assert merges_of(ranks) == [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"ab", b"ab")]


@given(words=st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12), max_size=12))
def test_both_vocabularies_cut_words_alike(
    kimi: KimiTokenizer, full: Tokenizer, words: list[str]
) -> None:
    text = " ".join(words)

    assert full.encode(text, add_special_tokens=False).ids == kimi.encode(text)


def test_control_tokens_keep_their_ids(kimi: KimiTokenizer, full: Tokenizer) -> None:
    assert full.get_vocab_size() == kimi.vocab_size
    for name, token_id in kimi.controls.ids.items():
        assert full.token_to_id(name) == token_id


def test_tokens_without_text_of_their_own_are_muted(kimi: KimiTokenizer) -> None:
    head = torch.ones(kimi.vocab_size, 2)
    mute(head, kimi)
    texts = [kimi.token_bytes(token_id) for token_id in range(kimi.vocab_size)]

    assert head[:, 0].bool().tolist() == [
        bool(text) and all(byte < 128 for byte in text) for text in texts
    ]


def test_other_servers_are_sent_ids_and_told_to_go_on() -> None:
    body = json.loads(completion_request(8000, PROMPT, 12).body)

    assert body["prompt"] == [3, 4, 5]
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"]) == (12, 0, True)
    assert body["stream"] and body["stream_options"] == {"include_usage": True}


def test_one_client_sends_three_requests_and_many_send_two_each() -> None:
    assert [num_requests(clients) for clients in (1, 2, 8, 32)] == [3, 4, 16, 64]


def test_answers_of_another_length_are_refused() -> None:
    check_lengths("ours", a_load(3, 12), [PROMPT], 12)
    for load in (a_load(4, 12), a_load(3, 11)):
        with pytest.raises(BenchmarkError, match="ours"):
            check_lengths("ours", load, [PROMPT], 12)


def test_agreement_is_in_tokens_before_the_first_difference() -> None:
    # five tokens of two letters each
    mine = an_answer("aabbccddee")
    agreement = Agreement.of([mine, mine], [mine, an_answer("aabbccxxxx")])

    assert agreement == Agreement(same_start=0.5, num_tokens=4.0)


def test_a_server_of_another_model_is_refused() -> None:
    mine = [an_answer(f"answer {number}") for number in range(10)]
    theirs = [*mine[:2], *(an_answer("something else") for _ in mine[2:])]

    check_agreement("llama", mine, theirs)
    with pytest.raises(BenchmarkError, match="llama: 0% of its answers"):
        check_agreement("llama", mine[2:], theirs[2:])


@pytest.mark.asyncio
async def test_a_server_of_another_model_is_refused_before_anything_is_measured() -> None:
    prompts = [
        BenchPrompt(token_ids=(number, 0, 0), messages=(), options=RenderOptions())
        for number in range(NUM_CHECKED)
    ]
    with a_peer(answer_by_name) as peer:
        same = {name: a_server(name, peer.port) for name in ("ours", "llama")}
        await check_same_work(same, prompts)
        assert len(peer.exchanges) == 2 * NUM_CHECKED
        with pytest.raises(BenchmarkError, match="vllm"):
            await check_same_work({**same, "vllm": a_server("vllm", peer.port)}, prompts)


@pytest.mark.asyncio
async def test_servers_are_sent_the_same_prompts_in_turn() -> None:
    prompts = [
        BenchPrompt(token_ids=(number, 0, 0), messages=(), options=RenderOptions())
        for number in range(100)
    ]
    options = Options(
        concurrency=(1,),
        num_tokens=5,
        rounds=2,
        threads=1,
        own_threads=1,
        dtype="bfloat16",
        cache="bf16",
    )
    names = ("ours", "llama", "vllm")
    with a_peer(answer_by_name) as peer:
        servers = {name: a_server(name, peer.port) for name in names}
        rows = await compare(servers, 1, iter(prompts), options)

    asked = [exchange.inputs for exchange in peer.exchanges]
    # a warm-up and two rounds of three requests each
    assert [inputs["server"] for inputs in asked] == [
        name for _ in range(3) for name in names for _ in range(3)
    ]
    for name in names:
        numbers = [inputs["prompt"] for inputs in asked if inputs["server"] == name]
        assert numbers == list(range(9))
    assert [row.agreement and row.agreement.same_start for row in rows] == [None, 1.0, 0.0]
    assert rows[0].ours_to_it is None and rows[1].ours_to_it is not None


def test_a_report_names_ratios_and_what_servers_took() -> None:
    same = Spread(1.0, 1.0, 1.0)
    rows = (
        Row(
            concurrency=8,
            engine="ours",
            tokens_per_s=Spread(900, 1000, 1100),
            first_text_s=same,
            ours_to_it=None,
            agreement=None,
        ),
        Row(
            concurrency=8,
            engine="vllm",
            tokens_per_s=Spread(450, 500, 550),
            first_text_s=Spread(0.1, 0.123, 0.2),
            ours_to_it=Spread(1.9, 2.0, 2.1),
            agreement=Agreement(same_start=0.75, num_tokens=6.25),
        ),
    )
    launches = (
        Launch(engine="ours", build_s=None, start_s=2.5, peak_bytes=400_000_000),
        Launch(engine="vllm", build_s=114.0, start_s=66.0, peak_bytes=3_000_000_000),
    )
    lines = layout(Report(rows=rows, launches=launches)).splitlines()

    (line,) = (line for line in lines if line.startswith("| 8 vllm"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == [
        "500 (450 to 550)",
        "2.00 (1.90 to 2.10)",
        "123 ms",
        "75% begin alike, 6.2 tokens",
    ]
    assert lines[-2] == "ours: ready 2.50 s after its start, peak memory 400 MB"
    assert lines[-1] == ("vllm: built in 114 s, ready 66.0 s after its start, peak memory 3000 MB")


def test_the_checkpoint_is_one_for_all(tmp_path: Path) -> None:
    checkpoints = ensure_checkpoints(tmp_path / "checkpoint")
    ours, released = checkpoints.ours, checkpoints.released

    assert load_config(ours).kv_lora_rank == 512
    assert load_text(ours).vocab_size <= load_config(ours).vocab_size
    assert json.loads((released / "config.json").read_text())["model_type"] == "deepseek_v3"
    assert (released / "model.safetensors").samefile(ours / "model.safetensors")
    written_ns = (ours / "model.safetensors").stat().st_mtime_ns
    ensure_checkpoints(tmp_path / "checkpoint")
    assert (ours / "model.safetensors").stat().st_mtime_ns == written_ns
