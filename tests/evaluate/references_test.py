"""The references: true probabilities, equal to what a slow reader of the formula writes, and to what xz does."""

import lzma
import math
import shutil
import subprocess
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smelt_jax.evaluate import references
from smelt_jax.evaluate.references import Trigram, xz_bits_per_byte

# Few letters, so that contexts repeat; empty documents and such of one or two bytes.
documents = st.lists(st.text('abc\0', max_size=12).map(str.encode) | st.binary(max_size=6), max_size=8)
TRAINING = [b'the cat sat on the mat', b'', b'a', b'the bat', bytes(range(256)), 'Blåbærsyltetøy'.encode()]
few = settings(max_examples=20, deadline=None)  # a table of 16 million counts each


def slow_bits_per_byte(training: list[bytes], heldout: list[bytes]) -> float:
    """The same, one dictionary look-up after the other."""
    follow: dict[bytes, Counter[int]] = defaultdict(Counter)
    for document in training:
        for i, byte in enumerate(document):
            for order in range(min(i, 2) + 1):
                follow[document[i - order : i]][byte] += 1

    def probability(context: bytes, byte: int) -> float:
        lower = probability(context[1:], byte) if context else 1 / 256
        seen = follow[context]
        return (seen[byte] + len(seen) * lower) / (seen.total() + len(seen)) if seen else lower

    bits = [-math.log2(probability(d[max(i - 2, 0) : i], byte)) for d in heldout for i, byte in enumerate(d)]
    return sum(bits) / len(bits)


@few
@given(documents, documents.filter(any))
def test_trigram_equals_its_slow_twin(training: list[bytes], heldout: list[bytes]) -> None:
    expected = slow_bits_per_byte(training, heldout)
    assert Trigram.fit(training).bits_per_byte(heldout) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('context', [b'', b't', b'th', b'he', b'on the', b'q', b'zq', b'\xff\xfe', b'\xc3\xa5'])
def test_probabilities_are_positive_and_sum_to_one(context: bytes) -> None:
    probabilities = Trigram.fit(TRAINING).probabilities(context)
    assert probabilities.shape == (256,)
    assert probabilities.min() > 0
    assert math.fsum(probabilities) == pytest.approx(1, abs=1e-14)


def test_bits_are_those_of_the_probabilities() -> None:
    trigram, text = Trigram.fit(TRAINING), b'the cut \x00'
    bits = [-np.log2(trigram.probabilities(text[:i])[byte]) for i, byte in enumerate(text)]
    assert trigram.bits_per_byte([text]) == pytest.approx(np.mean(bits), rel=1e-12)


def test_nothing_crosses_the_border_of_a_document() -> None:
    trigram = Trigram.fit([b'abab', b'cd'])
    forth, back = trigram.bits_per_byte([b'ab', b'cd']), trigram.bits_per_byte([b'cd', b'ab'])
    assert forth == pytest.approx(back, rel=1e-12)
    together, apart = Trigram.fit([b'abcd']), Trigram.fit([b'ab', b'cd'])
    assert together.probabilities(b'b')[ord('c')] > apart.probabilities(b'b')[ord('c')]
    assert apart.probabilities(b'b').tolist() == apart.probabilities(b'').tolist()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Trigram.fit(TRAINING).bits_per_byte(TRAINING)
    monkeypatch.setattr(references, 'BLOCK', 5)
    assert Trigram.fit(iter(TRAINING)).bits_per_byte(iter(TRAINING)) == pytest.approx(once, rel=1e-12)


def test_without_training_text_every_byte_costs_eight_bits() -> None:
    assert Trigram.fit([]).bits_per_byte([b'anything']) == 8


def test_text_like_the_training_text_costs_less() -> None:
    english, other = [b'the cat sat on the mat. ' * 20], [b'QUIZ JYNX FOGHORN 1234. ' * 20]
    assert Trigram.fit(english).bits_per_byte(english) < 2 < Trigram.fit(other).bits_per_byte(english)


def test_xz_compresses_all_documents_as_one_stream() -> None:
    text = [bytes(np.random.default_rng(0).integers(0, 256, 1000, np.uint8))] * 4
    assert xz_bits_per_byte(iter(text)) == 8 * len(lzma.compress(b''.join(text), preset=9)) / 4000
    assert xz_bits_per_byte(text) < 8 / 3  # it finds the three repeats


def test_xz_finds_a_repeat_over_nine_megabytes() -> None:
    noise = bytes(np.random.default_rng(0).integers(0, 256, 3000, np.uint8))
    document = noise + bytes(9 << 20) + noise  # farther than presets up to 6 look
    assert xz_bits_per_byte([document]) * len(document) / 8 < 5000


@pytest.mark.skipif(shutil.which('xz') is None, reason='xz is not installed')
def test_xz_is_what_the_command_makes() -> None:
    text = [word.encode() * 3 for word in references.__doc__.split()]
    made = subprocess.run(['xz', '-9', '-c', '-T1'], input=b''.join(text), capture_output=True, check=True).stdout
    assert xz_bits_per_byte(text) == 8 * len(made) / len(b''.join(text))


@pytest.mark.parametrize('heldout', [[], [b'', b'']])
def test_no_text_is_an_error(heldout: list[bytes]) -> None:
    with pytest.raises(ValueError, match='no held-out text'):
        Trigram.fit(TRAINING).bits_per_byte(heldout)
    with pytest.raises(ValueError, match='no held-out text'):
        xz_bits_per_byte(heldout)
