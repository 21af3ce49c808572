"""Held-out loss is the plain cross-entropy of every held-out target, however it is batched, and its groups add up to it."""

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from models import params_of
from runs_helper import edit

from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import load_manifest
from smelt_jax.data.rows import PackedRows
from smelt_jax.evaluate.heldout import evaluate, heldout_loss, length_labels
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import one_device
from smelt_jax.runs import RunDir

pytestmark = pytest.mark.usefixtures('quick')


@functools.cache
def logits_function(model: ModelConfig, visits: int) -> Callable:
    """All logits of one row, by a matrix product over the whole vocabulary."""

    def logits(params: dict, tokens: jax.Array, segments: jax.Array, positions: jax.Array) -> jax.Array:
        hidden = (
            Transformer(model)
            .apply({'params': params}, tokens[None], segments[None], positions[None], visits=visits)
            .hidden_BTD[0]
        )
        return hidden @ params['head']

    return jax.jit(logits)


def plain_targets(run: RunConfig, params: dict, visits: int, rows: list[int] | None = None) -> Iterator[tuple]:
    """(source index, tokens of its document, nats, bytes) of every target that counts, row by row, position by position."""
    packed = PackedRows(run.data.pack, 'heldout')
    for index in range(len(packed)) if rows is None else rows:
        row = packed[index]
        logits = np.asarray(
            logits_function(run.model, visits)(params, row.tokens[:-1], row.segment_ids[:-1], row.positions[:-1]),
            np.float64,
        )
        for at in range(len(row.tokens) - 1):
            if row.segment_ids[at] == row.segment_ids[at + 1] > 0:
                target = row.tokens[at + 1]
                nats = math.log(np.exp(logits[at]).sum()) - logits[at, target]
                yield row.source_ids[at + 1], row.document_tokens[at + 1], nats, int(target != 256)


def plain_groups(run: RunConfig, targets: list[tuple]) -> dict[str, dict[str, list[float]]]:
    """Sums of nats, targets and bytes, by everything that a loss is given for."""
    sources = load_manifest(run.data.pack).heldout.sources
    groups: dict = {by: defaultdict(lambda: [0.0, 0, 0]) for by in ('', 'by_source', 'by_domain', 'by_length')}
    low, middle, high = run.heldout.length_bins
    labels = {f'<{low}': low, f'{low}–{middle - 1}': middle, f'{middle}–{high - 1}': high, f'≥{high}': math.inf}
    for source, size, nats, count in targets:
        label = next(name for name, end in labels.items() if size < end)
        for by, name in (
            ('', ''),
            ('by_source', f'{sources[source].domain}/{sources[source].name}'),
            ('by_domain', sources[source].domain),
            ('by_length', label),
        ):
            groups[by][name] = [a + b for a, b in zip(groups[by][name], (nats, 1, count), strict=True)]
    return groups


def assert_entry(entry: dict[str, Any], nats: float, targets: int, size: int) -> None:
    assert (entry['targets'], entry['bytes']) == (targets, size)
    assert entry['loss'] == pytest.approx(nats / targets, rel=1e-5)
    assert entry['bits_per_byte'] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


@pytest.mark.parametrize('visits', [None, 3])
def test_the_loss_is_that_of_full_logits(looped: RunConfig, run_dir: RunDir, visits: int | None) -> None:
    record = evaluate(str(run_dir.path), 10, visits)
    groups = plain_groups(looped, list(plain_targets(looped, params_of(looped.model, 10), visits or 2)))
    assert_entry(record, *groups[''][''])
    for by in ('by_source', 'by_domain', 'by_length'):
        scored = {name: entry for name, entry in record[by].items() if entry['targets']}
        assert scored.keys() == groups[by].keys()
        for name, entry in scored.items():
            assert_entry(entry, *groups[by][name])
    assert len(record['by_source']) == 5
    assert list(record['by_length']) == length_labels(looped.heldout.length_bins)
    assert len(groups['by_length']) == 4


def test_bins_of_length_have_names() -> None:
    assert length_labels((100, 300, 500)) == ['<100', '100–299', '300–499', '≥500']
    assert length_labels((100,)) == ['<100', '≥100']
    assert length_labels(()) == ['all']


def test_groups_add_up_to_the_whole(looped: RunConfig, run_dir: RunDir) -> None:
    record = evaluate(str(run_dir.path), 5)
    for by in ('by_source', 'by_domain', 'by_length'):
        entries = [entry for entry in record[by].values() if entry['targets']]
        for key in ('targets', 'bytes'):
            assert sum(entry[key] for entry in entries) == record[key]
        assert sum(entry['loss'] * entry['targets'] for entry in entries) == pytest.approx(
            record['loss'] * record['targets']
        )
    heldout = load_manifest(looped.data.pack).heldout
    segments = sum(int(row.segment_ids.max()) for row in PackedRows(looped.data.pack, 'heldout'))
    assert record['targets'] == heldout.tokens - segments  # all but the first token of every segment


def test_a_group_of_nothing_has_no_loss(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    looped = edit(looped, heldout__length_bins=(100_000, 200_000))
    record = evaluate(str(make_run(tmp_path / 'run', looped, 5).path))
    assert record['by_length']['≥200000'] == {'loss': None, 'bits_per_byte': None, 'targets': 0, 'bytes': 0}
    assert record['by_length']['<100000']['targets'] == record['targets']


@pytest.mark.parametrize('batch_rows', [1, 7])
def test_the_batch_around_a_row_changes_nothing(looped: RunConfig, run_dir: RunDir, batch_rows: int) -> None:
    manifest, params = load_manifest(looped.data.pack), params_of(looped.model, 5)
    other = heldout_loss(
        params, edit(looped, heldout__batch_rows=batch_rows), manifest, looped.data.pack, 2, one_device()
    )
    record = heldout_loss(params, looped, manifest, looped.data.pack, 2, one_device())
    assert other['targets'] == record['targets']
    assert other['loss'] == pytest.approx(record['loss'], rel=1e-6)


def test_some_rows_are_spread_over_all(looped: RunConfig) -> None:
    manifest, params = load_manifest(looped.data.pack), params_of(looped.model, 5)
    rows = [index * manifest.heldout.rows // 6 for index in range(6)]
    assert manifest.heldout.rows > 30
    some = heldout_loss(params, edit(looped, heldout__max_rows=6), manifest, looped.data.pack, 2, one_device())
    assert_entry(some, *plain_groups(looped, list(plain_targets(looped, params, 2, rows)))[''][''])
    many = heldout_loss(params, edit(looped, heldout__max_rows=10**6), manifest, looped.data.pack, 2, one_device())
    assert many == heldout_loss(params, looped, manifest, looped.data.pack, 2, one_device())


def test_rows_of_another_pack_than_the_manifests_are_not_scored(looped: RunConfig) -> None:
    manifest = dataclasses.replace(load_manifest(looped.data.pack), fingerprint='c0ffee')
    with pytest.raises(ValueError, match=r'was packed anew: .* now, not c0ffee'):
        heldout_loss(params_of(looped.model, 5), looped, manifest, looped.data.pack, 2, one_device())


def test_a_bounded_buffer_drops_nothing_here(run_dir: RunDir) -> None:
    """A loss depends on no batch mates: what a mesh may drop in training it does not in evaluation."""
    bounded = MeshConfig(fsdp=1, expert=4, exchange='ragged', buffer=1.0)
    found = [evaluate(str(run_dir.path), mesh=mesh)['loss'] for mesh in (MeshConfig(fsdp=1), bounded)]
    np.testing.assert_allclose(*found, rtol=1e-6)
