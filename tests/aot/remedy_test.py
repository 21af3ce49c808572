"""The remedy named first is the least dear one that is enough."""

import dataclasses

import pytest
from models import TINY, edit

from smelt_jax.aot.remedy import Remedy, advice, remedies_of
from smelt_jax.aot.units import size
from smelt_jax.config import RunConfig
from smelt_jax.data.config import PackConfig, RowsConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.train.config import LossConfig

MODEL = edit(TINY, width=64, vocab=4096, experts__count=32)
RUN = RunConfig(model=MODEL, pack=PackConfig(row_tokens=1024), data=RowsConfig(batch_rows=64), mesh=MeshConfig(2, 2, 2))
SIZES = {'replica': 2, 'fsdp': 2, 'expert': 2}
MIB = 2.0**20


def named(run=RUN, needs=1000 * MIB, excess=1 * MIB, arguments=100 * MIB, exchange='ragged', sizes=SIZES, loss=1024):
    run = dataclasses.replace(run, loss=LossConfig(chunk_tokens=loss))
    return advice(remedies_of(run, sizes, exchange, arguments, needs, excess), excess)


def test_the_dearness_counts_before_the_size() -> None:
    cheap, dear = Remedy('a', 10.0, 'cheap'), Remedy('b', 99.0, 'dear')
    assert advice([cheap, dear], 5.0).startswith('try a: ')
    assert advice([cheap, dear], 50.0).startswith('try b: ')
    assert advice([cheap, dear], 105.0).startswith('try b and a: about 109 B less')
    assert 'more memory' in advice([cheap, dear], 200.0)


def test_a_little_is_found_in_the_loss() -> None:
    # 512 tokens less, 4096 words, 8 bytes: 16 MiB; a quarter is enough for more.
    assert named(excess=15 * MIB).startswith('try --config.loss.chunk_tokens=512: about 16.00 MiB less')
    assert 'chunk_tokens=256' in named(excess=20 * MIB)


def test_then_in_the_exchange_at_as_many_tokens_as_can_be() -> None:
    # 8 rows of 1024 tokens; a token has 2 choices, room for 2 times them, and 12 · 64 + 8 · 10 bytes a choice.
    row = 2 * 2 * (12 * 64 + 8 * 10)
    assert f'mesh.chunk_tokens=4096: about {size(4096 * row)} less' in named(excess=13 * MIB, loss=256)
    assert 'mesh.chunk_tokens=2048' in named(excess=15 * MIB, loss=256)


def test_then_in_microbatches_as_few_as_are_enough() -> None:
    assert 'optim.accumulate=2' in named(excess=300 * MIB)
    assert 'optim.accumulate=4' in named(excess=550 * MIB)


def test_microbatches_divide_the_rows_and_one_row_is_not_cut() -> None:
    one_row = dataclasses.replace(RUN, data=RowsConfig(batch_rows=8))
    assert 'accumulate' not in named(one_row, excess=300 * MIB)


def test_a_state_that_is_too_large_asks_for_shards_or_chips() -> None:
    line = named(needs=1000 * MIB, excess=100 * MIB, arguments=950 * MIB)
    assert line.startswith('try --config.mesh.replica=1 --config.mesh.fsdp=4: about 475.00 MiB less')
    no_copies = {'replica': 1, 'fsdp': 4, 'expert': 2}
    line = named(needs=1000 * MIB, excess=600 * MIB, arguments=950 * MIB, sizes=no_copies)
    assert line.startswith('try 4 times the chips with --config.mesh.fsdp=16: ')


@pytest.mark.parametrize(('exchange', 'there'), [('ragged', True), ('gather', False)])
def test_a_buffer_is_bounded_where_there_is_one(exchange: str, there: bool) -> None:
    sizes = {'replica': 1, 'fsdp': 1, 'expert': 8}
    found = remedies_of(RUN, sizes, exchange, MIB, 1000 * MIB, MIB)
    assert any('mesh.buffer=2' in remedy.setting for remedy in found) == there


def test_layers_are_computed_again_only_where_they_are_not_yet() -> None:
    for remat, there in [('none', True), ('dots', True), ('layer', False)]:
        run = dataclasses.replace(RUN, model=edit(MODEL, remat=remat))
        found = remedies_of(run, SIZES, 'gather', MIB, 1000 * MIB, MIB)
        assert any('remat=layer' in remedy.setting for remedy in found) == there


def test_tokens_are_exchanged_some_at_a_time_before_any_is_dropped() -> None:
    """As many as are enough: 8192 tokens of each of 8 devices, of two choices, are some 100 MiB."""
    sizes = {'replica': 1, 'fsdp': 1, 'expert': 8}
    assert 'mesh.chunk_tokens=4096' in named(sizes=sizes, excess=45 * MIB)
    assert 'mesh.chunk_tokens=2048' in named(sizes=sizes, excess=70 * MIB)
    assert 'mesh.chunk_tokens' not in named(sizes=SIZES | {'expert': 1}, excess=45 * MIB)
