"""The split rule: what is scored is the continuation, whatever the tokenizer; and what is encoded in parts is the whole."""

import itertools
import json
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_files import BPE, BYTES, LINES, WILD, with_split

from smelt_jax.data import tokenizer as tokenizer_module
from smelt_jax.data.tokenizer import CUTS, EOS_TEXT, SubwordTokenizer, Tokenizer, may_cut
from smelt_jax.tasks.encoding import Encoder

LLAMA, QWEN = (with_split(pattern) for pattern in tokenizer_module._SPLITS)
TOKENIZERS = {'bytes': BYTES, 'bpe': BPE, 'llama': LLAMA, 'qwen': QWEN, 'wild': WILD}
TEXTS = st.text(
    st.sampled_from(string.ascii_letters[:8] + "  \n\n\t\r'.,:12éß日\u00a0\u0301<|>"), max_size=60
) | st.lists(
    st.sampled_from([*LINES[:3], 'the dog', ' and', '\nAnswer: ', EOS_TEXT, '\n', '  ', "'s"]), max_size=8
).map(''.join)


def test_which_tokenizers_may_be_cut() -> None:
    assert {name for name, each in TOKENIZERS.items() if may_cut(each)} == {'bytes', 'bpe', 'llama', 'qwen'}
    for change in (
        {'normalizer': {'type': 'Lowercase'}},
        {'pre_tokenizer': {**BPE._state['pre_tokenizer'], 'add_prefix_space': True}},
        {'pre_tokenizer': {**BPE._state['pre_tokenizer'], 'use_regex': False}},
        {'model': {**BPE._state['model'], 'dropout': 0.1}},
        {'added_tokens': [*BPE._state['added_tokens'], {**BPE._state['added_tokens'][0], 'content': 'a b', 'id': 999}]},
    ):
        assert not may_cut(SubwordTokenizer(json.dumps(BPE._state | change), 'changed'))


@pytest.mark.parametrize('name', TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_an_encoder_is_its_tokenizer(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert Encoder(tokenizer).encode(text).tolist() == tokenizer.encode(text).tolist()
    if may_cut(tokenizer):
        ends = [0, *(cut.end() for cut in CUTS.finditer(text)), len(text)]
        parts = [tokenizer.encode(text[a:b]) for a, b in itertools.pairwise(ends)]
        assert np.concatenate(parts).tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize('name', TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(context=TEXTS, continuations=st.lists(TEXTS.filter(bool), min_size=1, max_size=3))
def test_the_split_rule(name: str, context: str, continuations: list[str]) -> None:
    tokenizer: Tokenizer = TOKENIZERS[name]
    encoder = Encoder(tokenizer)
    for continuation in continuations:
        tokens, start = encoder.split(context, continuation)
        text = (context + continuation).encode()
        assert tokens.dtype == np.int32
        assert 1 <= start < len(tokens)
        assert tokenizer.decode(tokens) == text
        span = tokenizer.decode(tokens[start:])
        assert span.endswith((context[len(context.rstrip()) :] + continuation).encode())
        whole, alone = tokenizer.encode(context + continuation), tokenizer.encode(context.rstrip())
        begun = int(tokens[0] == tokenizer.eos)
        assert tokens[begun:].tolist() == whole.tolist()
        same = next(
            (i for i, (a, b) in enumerate(zip(whole, alone, strict=False)) if a != b), min(len(whole), len(alone))
        )
        assert begun == (same == 0)
        assert start == max(same, 1)


def test_a_token_over_the_joint_is_scored_and_nothing_is_empty() -> None:
    encoder = Encoder(BPE)
    tokens, start = encoder.split('Question: what is the co', 'lour')
    assert BPE.decode(tokens[start:]) == b' colour'  # one token, begun in the context
    tokens, start = encoder.split('', 'white')
    assert (tokens[0], start) == (BPE.eos, 1)
    tokens, start = encoder.split(' \n ', 'white')
    assert (tokens[0], start, BPE.decode(tokens)) == (BPE.eos, 1, b' \n white')
    tokens, start = encoder.split('the colour', ' white')
    assert (BPE.eos in tokens, BPE.decode(tokens[start:])) == (False, b' white')
    assert encoder.opening('the colour: ').tolist() == BPE.encode('the colour:').tolist()
    assert encoder.opening(' ').tolist() == [BPE.eos]


def test_a_tokenizer_that_drops_white_space_leaves_something_to_score() -> None:
    class Dropping(type(BYTES)):  # type: ignore[misc]
        def encode(self, text: str) -> np.ndarray:
            return super().encode(text.rstrip())

    tokens, start = Encoder(Dropping()).split('ab', ' ')
    assert (tokens.tolist(), start) == ([*b'ab'], 1)
    with pytest.raises(ValueError, match="' ' has no tokens"):
        Encoder(Dropping()).split('', ' ')
