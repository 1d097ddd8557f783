"""Nobody can sense what another tenant has asked: not by time, nor by what is said to be cached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.classifiers import best_attack
from support.probes import CHECKPOINTS, a_nano_engine, probe, probe_tokenizer
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.text.glm_tokenizer import GlmTokenizer
from tenantry_runtime.text.kimi_tokenizer import KimiTokenizer

NUM_PROBES = 4000
"""Where there is nothing to find, the AUC of 2,000 trials of either kind has a standard error of 0.0091:
its upper bound is over 0.55 once in 10,000 runs. With half of the trials it would be once in 80."""

NUM_PROBES_OF_ONES_OWN = 400

MAX_AUC = 0.55
MIN_AUC_OF_ONES_OWN = 0.95


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineLoop]:
    loop = a_nano_engine()
    # the first requests pay for what is made once
    probe(loop, victim="globex", attacker="acme", num_probes=40, seed=1)
    yield loop
    loop.close()


@pytest.mark.timing
def test_another_tenants_cache_cannot_be_sensed(engine: EngineLoop) -> None:
    seen, truth = probe(engine, victim="globex", attacker="acme", num_probes=NUM_PROBES, seed=2)

    attacks = best_attack(seen, truth)

    print({name: str(found) for name, found in attacks.items()})
    assert not seen[:, 1].any(), "nothing was ever said to be cached"
    assert max(found.upper for found in attacks.values()) <= MAX_AUC, attacks


@pytest.mark.timing
def test_the_same_probe_senses_ones_own_cache(engine: EngineLoop) -> None:
    """So the probes of others are as good as can be: it is not for noise that they find nothing."""
    seen, truth = probe(
        engine, victim="acme", attacker="acme", num_probes=NUM_PROBES_OF_ONES_OWN, seed=3
    )

    attacks = best_attack(seen, truth)

    print({name: str(found) for name, found in attacks.items()})
    assert min(found.lower for found in attacks.values()) >= MIN_AUC_OF_ONES_OWN, attacks


@pytest.mark.timing
@pytest.mark.parametrize(
    ("model", "tokenizer"), [("kimi-k2.6-nano", KimiTokenizer), ("glm-5.2-nano", GlmTokenizer)]
)
def test_another_tenants_words_cannot_be_sensed(
    model: str, tokenizer: type[KimiTokenizer | GlmTokenizer]
) -> None:
    """Tokenizers are one to all tenants, and must not remember what they have been given."""
    seen, truth = probe_tokenizer(
        lambda: tokenizer.load(CHECKPOINTS / model), num_probes=NUM_PROBES, seed=4
    )

    attacks = best_attack(seen, truth)

    print({name: str(found) for name, found in attacks.items()})
    assert max(found.upper for found in attacks.values()) <= MAX_AUC, attacks


@pytest.mark.timing
def test_words_that_a_tokenizer_remembered_would_be_sensed() -> None:
    def load() -> GlmTokenizer:
        tokenizer = GlmTokenizer.load(CHECKPOINTS / "glm-5.2-nano")
        # what the library does by itself
        tokenizer._plain.model._resize_cache(10_000)
        return tokenizer

    attacks = best_attack(*probe_tokenizer(load, num_probes=NUM_PROBES_OF_ONES_OWN, seed=5))

    print({name: str(found) for name, found in attacks.items()})
    assert max(found.lower for found in attacks.values()) > MAX_AUC, attacks
