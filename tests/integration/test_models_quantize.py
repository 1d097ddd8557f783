"""`workerctl models quantize` as an operator runs it: on a shipped model, cut off, taken up, served."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import tenantry_runtime
from support.command_line import a_workerctl_process, workerctl
from support.conversions import all_tensors
from support.paged_batch import PagedRun
from support.quantized_copies import dequantized
from support.tiny_checkpoints import prompt
from tenantry_runtime.models.loader import load_model
from tenantry_runtime.text import load_text

NANO = Path(tenantry_runtime.__file__).parent / "checkpoints"
GLM = NANO / "glm-5.2-nano"

# one tensor per file, nearly: a run lasts long enough to be cut off
TINY_FILES = ("--shard-gib", "0.00001")


def quantized(destination: Path, *options: str) -> str:
    result = workerctl("models", "quantize", str(GLM), str(destination), *options, env={})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path: Path) -> None:
    destination = tmp_path / "int4"
    arguments = ("models", "quantize", str(GLM), str(destination), *TINY_FILES)
    with a_workerctl_process(*arguments, env={}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"file 1 of" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stdout.read() == b""
        said = process.stderr.read().decode()
    interrupted = re.fullmatch(
        rf"Interrupted: (\d+) of (\d+) files are kept in {destination}\.partial; "
        r"run the same command to go on\.",
        said.splitlines()[-1],
    )
    assert interrupted is not None, said
    num_kept, num_files = map(int, interrupted.groups())
    assert 0 < num_kept < num_files
    assert not destination.exists()

    result = workerctl(*arguments, env={})
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count(", kept\n") == num_kept
    assert f"{num_kept} of them kept from before" in result.stdout
    assert not Path(f"{destination}.partial").exists()
    assert "was complete" in workerctl(*arguments, env={}).stdout


@pytest.mark.parametrize("rest", ["bf16", "fp8"])
def test_the_result_answers_nearly_as_the_released_model(tmp_path: Path, rest: str) -> None:
    said = quantized(tmp_path / "int4", "--rest", rest)
    sizes = re.search(r"routed experts +([\d.]+) MiB +([\d.]+) MiB +0\.56", said)
    assert sizes is not None, said
    token_ids = prompt(200, seed=1)
    released, converted = (
        PagedRun(load_model(directory)).read(token_ids) for directory in (GLM, tmp_path / "int4")
    )
    assert not released.equal(converted)
    # a token of random text is worth several bits; another model would lose them
    loss = released.log_softmax(-1) - converted.log_softmax(-1)
    assert float((loss * released.softmax(-1)).sum(-1).mean()) < 0.05
    assert load_text(tmp_path / "int4").family == "glm"


def test_the_rest_is_what_the_released_blocks_mean(tmp_path: Path) -> None:
    quantized(tmp_path / "int4")
    tensors = all_tensors(tmp_path / "int4")
    from safetensors.torch import load_file

    exact = dequantized(load_file(GLM / "model.safetensors"))
    # shared expert, dense layer, indexer, attention, MTP
    for name in (
        "model.layers.3.mlp.shared_experts.down_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.1.self_attn.indexer.wq_b.weight",
        "model.layers.5.self_attn.kv_b_proj.weight",
        "model.layers.6.self_attn.o_proj.weight",
        "model.layers.6.eh_proj.weight",
    ):
        assert tensors[name].equal(exact[name].bfloat16()), name


def test_a_kimi_that_is_int4_already_is_refused(tmp_path: Path) -> None:
    arguments = ("models", "quantize", str(NANO / "kimi-k2.6-nano"), str(tmp_path / "out"))
    result = workerctl(*arguments, env={})
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is INT4 already" in result.stderr


def test_a_cut_off_download_says_to_fetch_it_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in GLM.iterdir():
        content = path.read_bytes()
        (source / path.name).write_bytes(
            content[: len(content) // 2] if path.suffix == ".safetensors" else content
        )
    result = workerctl("models", "quantize", str(source), str(tmp_path / "out"), env={})
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(source / "model.safetensors") in result.stderr
    assert "fetch it again" in result.stderr
    assert "Traceback" not in result.stderr
