"""Decoding with the cache is the loop that reads everything again for every token; nothing around a prompt changes it."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import TINY, assert_same, edit, jit, looped, packed, params_of, run

from smelt_jax.generate import decode
from smelt_jax.generate.decode import batches, generate, read_prompts, rounded
from smelt_jax.generate.programs import STRETCH, Rows, programs
from smelt_jax.generate.sampling import Sampling
from smelt_jax.model.transformer import Transformer, logits_of
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices, one_device

pytestmark = pytest.mark.usefixtures('quick')

MODEL = edit(looped(0, 2, 0, visits=2), experts__count=8)  # one stack: little to compile
PARAMS = params_of(MODEL)
PROMPTS = [np.random.default_rng(n).integers(0, MODEL.vocab, n, np.int32) for n in (5, 1, 11, 3)]
NEVER = 10**6  # an EOS that the model does not have
DRAWN = Sampling(new_tokens=12, chunk=4, temperature=1.0, top_k=20, top_p=0.95, seed=5)
GREEDY = Sampling(new_tokens=20, chunk=4)


def continued(prompts=PROMPTS, settings=GREEDY, visits=2, eos=NEVER, model=MODEL, params=PARAMS, **more):
    return [each.tolist() for each in generate(params, model, one_device(), prompts, settings, visits, eos, **more)]


@functools.cache
def forward(model, visits):
    @jit
    def last_logits(params, tokens_1T, length):
        positions_1T = jnp.arange(tokens_1T.shape[1])[None]
        segments_1T = (positions_1T < length).astype(jnp.int32)
        output = Transformer(model).apply({'params': params}, tokens_1T, segments_1T, positions_1T, visits=visits)
        return logits_of(params, output.hidden_BTD[0, length - 1])

    return last_logits


def naive(prompt, count, visits, model=MODEL, params=PARAMS):
    tokens = np.zeros((1, 32), np.int32)
    tokens[0, : len(prompt)] = prompt
    for length in range(len(prompt), len(prompt) + count):
        tokens[0, length] = np.argmax(forward(model, visits)(params, tokens, length))
    return tokens[0, len(prompt) : len(prompt) + count].tolist()


@pytest.mark.parametrize(
    ('model', 'visits'),
    [(MODEL, 1), (MODEL, 2), (MODEL, 3), (looped(0, 0, 2, visits=1), 1), (TINY, 4)],
    ids=['once', 'twice', 'thrice', 'no loop', 'prelude, loop four times, coda'],
)
def test_greedy_is_the_naive_loop(model, visits):
    params = params_of(model)
    expected = [naive(prompt, GREEDY.new_tokens, visits, model, params) for prompt in PROMPTS]
    assert continued(visits=visits, model=model, params=params) == expected
    assert len({tuple(each) for each in expected}) == len(PROMPTS)


@pytest.mark.parametrize('chunk', [1, 3, 256])
def test_the_size_of_a_piece_changes_nothing(chunk):
    assert continued(settings=dataclasses.replace(GREEDY, chunk=chunk)) == continued()


@pytest.mark.parametrize('settings', [GREEDY, DRAWN], ids=['greedy', 'drawn'])
def test_unequal_prompts_together_are_each_alone(settings):
    together = continued(settings=settings)
    assert continued(settings=settings, batch_rows=3) == together  # three and one
    if settings.greedy:
        for prompt, tokens in [*zip(PROMPTS, together, strict=True)][1:3]:
            assert continued([prompt]) == [tokens]


def test_seeds_and_rows_have_draws_of_their_own():
    same = [PROMPTS[0]] * 4
    found = continued(same, DRAWN)
    assert found == continued(same, DRAWN)
    assert len({tuple(each) for each in found}) == 4
    assert found != continued(same, dataclasses.replace(DRAWN, seed=6))
    assert found[:1] == continued(same[:1], DRAWN)


@pytest.mark.parametrize('sizes', [(8, 1, 1), (2, 2, 2)], ids=str)
def test_eight_devices_equal_one(sizes):
    # Its bounded buffer would drop; generation has none.
    devices = Devices.of(MeshConfig(*sizes, exchange='ragged' if sizes[2] > 1 else 'auto', buffer=float(sizes[2] > 1)))
    params = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), PARAMS, devices.placed(PARAMS))
    eos = continued()[2][5]
    for settings in (GREEDY, DRAWN):
        found = generate(params, MODEL, devices, PROMPTS, settings, 2, eos)
        assert [each.tolist() for each in found] == continued(settings=settings, eos=eos)


def test_rows_end_with_eos_and_stop_tokens_and_others_go_on():
    whole = continued()
    eos, ended = whole[0][3], {}
    found = continued(eos=eos, on_token=lambda row, tokens, end: ended.update({row: end}))
    for row, tokens in enumerate(whole):
        assert found[row] == (tokens[: tokens.index(eos)] if eos in tokens else tokens)
        assert ended[row] == ('eos' if eos in tokens else 'length')
    stop = dataclasses.replace(GREEDY, stop_tokens=(eos, NEVER - 1))
    assert continued(settings=stop, on_token=lambda row, tokens, end: ended.update({row: end})) == found
    assert ended[0] == 'stop'


class Letters:
    """A token is two bytes, so that stops lie across borders; of one id fewer than the model has."""

    vocab, eos = MODEL.vocab - 1, NEVER

    def decode(self, ids):
        return b''.join(bytes([65 + int(i) // 8, 97 + int(i) % 8]) for i in ids)


def test_stop_texts_are_found_across_tokens():
    whole, letters = continued(tokenizer=Letters()), Letters()
    text = letters.decode(whole[0])
    stops = (text[7:10].decode(), 'never')
    first = text.find(text[7:10])
    count = (first + 3 + 1) // 2  # with the token that completes it
    pieces = []
    settings = dataclasses.replace(GREEDY, stops=stops)
    found = continued(settings=settings, tokenizer=letters, on_token=lambda row, *more: pieces.append((row, *more)))
    assert found[0] == whole[0][:count]
    own = [(tokens.tolist(), end) for row, tokens, end in pieces if row == 0]
    assert [token for tokens, _ in own for token in tokens] == found[0]
    assert [end for _, end in own] == [''] * (len(own) - 1) + ['stop']


def test_ids_that_the_tokenizer_lacks_are_not_picked():
    last = MODEL.vocab - 1
    params = PARAMS | {'head': PARAMS['head'].at[:, last].set(100 * PARAMS['head'][:, 3])}
    assert any(last in tokens for tokens in continued(params=params))
    assert not any(last in tokens for tokens in continued(params=params, tokenizer=Letters()))


def test_nothing_is_written_for_rows_that_have_ended():
    compiled = programs(MODEL, 2, one_device(), MODEL.vocab, True, False)
    prompts = [prompt[:-1] for prompt in PROMPTS]
    cache = read_prompts(PARAMS, compiled, lambda tree: tree, prompts, 6, GREEDY)
    lengths = np.array([len(prompt) for prompt in prompts] + [0, 0])
    left_B = np.array([3, 0, 20, 1, 0, 0], np.int32)
    rows = Rows(np.zeros(6, np.int32), lengths.astype(np.int32), left_B, np.arange(6, dtype=np.int32))
    cache, new_BI = compiled.stretch(PARAMS, cache, rows, GREEDY.numbers(), np.array([NEVER], np.int32))
    read_B = np.minimum(left_B, STRETCH)
    assert [int(np.sum(new_I >= 0)) for new_I in np.asarray(new_BI)] == read_B.tolist()
    for leaf in jax.tree.leaves(cache):
        for row, size in enumerate(lengths + read_B):
            slots_XSGH = np.asarray(leaf.reshape(-1, *leaf.shape[-4:])[:, row])
            assert np.all(np.any(slots_XSGH[:, :size] != 0, axis=(2, 3)))
            assert not np.any(slots_XSGH[:, size:])
    every = np.arange(MODEL.vocab, dtype=np.int32)  # all end at once, and within the stretch
    _, new_BI = compiled.stretch(PARAMS, cache, rows, GREEDY.numbers(), every)
    assert np.array_equal(np.asarray(new_BI) >= 0, (left_B > 0)[:, None] & (np.arange(STRETCH) == 0))


def test_it_ends_when_all_rows_have(monkeypatch):
    looks = []

    def counted(*args):
        compiled = programs(*args)
        return compiled._replace(stretch=lambda *args: looks.append(1) or compiled.stretch(*args))

    eos = continued()[2][2]
    monkeypatch.setattr(decode, 'programs', counted)
    assert len(continued(PROMPTS[2:3], dataclasses.replace(GREEDY, new_tokens=40), eos=eos)[0]) <= 2
    assert len(looks) == 1


def test_few_programs_are_compiled():
    compiled = programs(MODEL, 2, one_device(), MODEL.vocab, False, True)
    long = np.resize(PROMPTS[2], 30)
    continued([long, *PROMPTS[:2]], DRAWN)
    before = compiled.stretch._cache_size(), compiled.read._cache_size(), compiled.empty._cache_size()
    other = dataclasses.replace(DRAWN, temperature=0.3, top_k=7, top_p=0.5, seed=9, new_tokens=20)
    continued([long[:25], PROMPTS[3], PROMPTS[1]], other)
    assert (compiled.stretch._cache_size(), compiled.read._cache_size(), compiled.empty._cache_size()) == before
    sizes = [rounded(size) for size in range(1, 2000)]
    assert all(size <= got <= 1.5 * size for size, got in enumerate(sizes, 1))
    assert len(set(sizes)) == 22


def test_a_piece_of_a_prompt_makes_no_square():
    capacity, chunk = 1009, 13
    compiled = programs(MODEL, 2, one_device(), MODEL.vocab, True, False)
    cache = compiled.empty(2, capacity)
    text = compiled.read.lower(
        PARAMS, cache, np.zeros((2, chunk), np.int32), np.ones(2, np.int32), np.int32(0)
    ).as_text()
    shapes = [list(map(int, re.findall('[0-9]+(?=x)', shape))) for shape in set(re.findall('tensor<([0-9x]+)', text))]
    assert any(capacity in shape and chunk in shape for shape in shapes)  # the scores
    assert not any(shape.count(capacity) > 1 for shape in shapes)


def test_parameters_in_the_dtype_of_the_computation_are_the_same_model():
    model = edit(MODEL, dtype='bfloat16')
    ready = programs(model, 2, one_device(), model.vocab, True, False).ready(PARAMS)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(ready)} == {'bfloat16', 'float32'}
    batch = packed((9, 4), (12,))
    forward = jit(lambda params: run(model, params, batch)[0])
    assert_same(forward(ready), forward(PARAMS))


def test_prompts_of_as_many_pieces_go_together():
    assert list(batches([9, 1, 5, 2, 8, 4], chunk=4, batch_rows=2)) == [[1, 3], [5, 2], [4, 0]]
    assert list(batches([3, 1, 4], chunk=4, batch_rows=8)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ('more', 'line'),
    [
        ({'prompts': [PROMPTS[0], []]}, 'prompt 2 has no token; begin it with EOS'),
        ({'prompts': [[MODEL.vocab]]}, 'prompt 1 has ids from 61 to 61; model.vocab=61'),
        ({'settings': Sampling(stops=('x',))}, r"stops=\('x',\) are texts: give the tokenizer"),
        ({'visits': 0}, 'model.loop.visits=0: must be at least 1'),
        ({'batch_rows': 0}, 'batch_rows=0: at least one'),
    ],
    ids=str,
)
def test_what_cannot_be_continued_is_refused(more, line):
    with pytest.raises(ValueError, match=line):
        continued(**more)


def test_logits_that_are_not_finite_end_it():
    broken = PARAMS | {'head': PARAMS['head'] * np.nan}
    with pytest.raises(ValueError, match='the logits of prompt 1 are not finite after 0 new tokens'):
        continued(PROMPTS[:1], params=broken)


def test_no_prompt_is_no_work():
    assert continued([]) == []
