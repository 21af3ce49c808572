"""Held-out loss of a checkpoint: by source, by domain, by document length. Each evaluation is a record."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import jax
import numpy as np

from smelt_jax.batch import Batch
from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import Manifest, load_tokenizer
from smelt_jax.data.rows import heldout_batches
from smelt_jax.evaluate.opened import Opened, Record, open_checkpoint
from smelt_jax.model.config import ModelConfig
from smelt_jax.model.transformer import Transformer
from smelt_jax.parallel import processes
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import BATCH, Devices
from smelt_jax.runs import RunDir
from smelt_jax.train.loss import token_losses


@dataclasses.dataclass
class Tally:
    """Sums over scored targets, in groups. The first group of three axes is `by`: source, domain or length bin."""

    nats: np.ndarray
    targets: np.ndarray
    bytes: np.ndarray

    @classmethod
    def empty(cls, groups: int) -> 'Tally':
        return cls(*(np.zeros(groups) for _ in range(3)))

    def add(self, group: np.ndarray, nats: np.ndarray, token_bytes: np.ndarray) -> None:
        """Adds targets: `group` their group's index, `nats` their cross-entropy, `token_bytes` the bytes they stand for."""
        size = len(self.nats)
        self.nats += np.bincount(group, nats, size)
        self.targets += np.bincount(group, minlength=size)
        self.bytes += np.bincount(group, token_bytes, size)

    def entry(self, groups: list[int]) -> Record:
        """The loss over some groups together: sums first, one division at the end."""
        nats, targets, size = (float(a[groups].sum()) for a in (self.nats, self.targets, self.bytes))
        return {
            'loss': nats / targets if targets else None,
            'bits_per_byte': nats / math.log(2) / size if size else None,
            'targets': int(targets),
            'bytes': int(size),
        }


def evaluate(
    workdir: str, step: int | None = None, visits: int | None = None, pack: str = '', mesh: MeshConfig | None = None
) -> Record:
    """Held-out loss of a checkpoint, added to the run's records.jsonl: `open_checkpoint`, then `heldout`."""
    batch_rows = RunDir(workdir).config().heldout.batch_rows
    return heldout(open_checkpoint(workdir, step, visits, pack, mesh, heldout__batch_rows=batch_rows), visits)


def heldout(opened: Opened, visits: int | None = None, length_bins: tuple[int, ...] = ()) -> Record:
    """Held-out loss of an opened checkpoint, added to its run's records.jsonl.

    Args:
      opened: the checkpoint, and the rows whose held-out ones are scored.
      visits: of the loop; None for the config's.
      length_bins: edges of the bins of document length in tokens; those of the config if there are none.
    """
    run = opened.run
    if length_bins:
        run = dataclasses.replace(run, heldout=dataclasses.replace(run.heldout, length_bins=length_bins))
        run.heldout.check()
    visits = run.model.loop.visits if visits is None else visits
    record = {
        **opened.record('heldout', visits),
        **heldout_loss(opened.params, run, opened.manifest, opened.pack, visits, opened.devices),
    }
    if processes.first():
        opened.run_dir.put_records([record])
    return record


def heldout_loss(params: dict, run: RunConfig, manifest: Manifest, pack: str, visits: int, devices: Devices) -> Record:
    """Cross-entropy in nats per token and in bits per byte, over all held-out targets and in groups.

    Bytes are those the scored targets stand for. The first token of a segment has no prediction and is not scored; an EOS
    is scored and stands for no byte. Every row is scored by itself: the batch around it changes nothing.

    Args:
      params: of the model of `run`.
      run, manifest, pack: the config and the packed rows.
      visits: of the loop.
      devices: that share each batch; every process reads all of it.
    """
    if manifest.heldout.rows == 0:
        raise ValueError(f'{pack} has no held-out rows; pack with a larger pack.heldout_fraction')
    score = scorer(run.model, visits, run.loss.chunk_tokens, devices)
    mine = devices.local_rows(run.heldout.batch_rows)
    sources = manifest.heldout.sources
    edges = np.array(run.heldout.length_bins)
    token_bytes = load_tokenizer(pack).token_bytes
    by_source, by_length = Tally.empty(len(sources)), Tally.empty(len(edges) + 1)
    batches = heldout_batches(pack, run.heldout.batch_rows, run.heldout.max_rows, manifest.fingerprint)
    for batch, source_ids_BT, document_tokens_BT in batches:
        scored = batch.loss_mask_BT > 0
        share = devices.batch(jax.tree.map(lambda array: array[mine], batch), run.heldout.batch_rows)
        nats = np.asarray(score(params, share))[scored].astype(np.float64)
        if not np.isfinite(nats).all():
            raise ValueError(f'the held-out loss of {run.name} at {visits=} is not finite: nothing was recorded')
        sizes = token_bytes[batch.targets_BT[scored]]
        by_source.add(source_ids_BT[scored], nats, sizes)
        by_length.add(np.searchsorted(edges, document_tokens_BT[scored], side='right'), nats, sizes)
    domains = sorted({source.domain for source in sources})
    members = {domain: [i for i, source in enumerate(sources) if source.domain == domain] for domain in domains}
    return {
        **by_source.entry(list(range(len(sources)))),
        'by_source': {source.label: by_source.entry([i]) for i, source in enumerate(sources)},
        'by_domain': {domain: by_source.entry(members[domain]) for domain in domains},
        'by_length': {label: by_length.entry([i]) for i, label in enumerate(length_labels(run.heldout.length_bins))},
    }


def length_labels(edges: tuple[int, ...]) -> list[str]:
    """Names of the bins of document length in tokens: `<512`, `512–1023`, …, `≥4096`."""
    if not edges:
        return ['all']
    middle = [f'{low}–{high - 1}' for low, high in itertools.pairwise(edges)]
    return [f'<{edges[0]}', *middle, f'≥{edges[-1]}']


@functools.cache
def scorer(model: ModelConfig, visits: int, chunk: int, devices: Devices) -> Callable[[dict, Batch], jax.Array]:
    """The compiled function (params, batch) → cross-entropy in nats of every target, float32 [B, T], on every device."""
    transformer = Transformer(model, devices.share(model))

    def score(params: dict, batch: Batch) -> jax.Array:
        params = transformer.share.outer(params)
        output = transformer.apply(
            {'params': params}, batch.tokens_BT, batch.segment_ids_BT, batch.positions_BT, visits=visits
        )
        hidden_ND = output.hidden_BTD.reshape(-1, output.hidden_BTD.shape[-1])
        losses_N = token_losses(hidden_ND, params['head'], batch.targets_BT.reshape(-1), chunk)
        return losses_N.reshape(batch.targets_BT.shape)

    def scored(params: dict, batch: Batch) -> jax.Array:
        return devices.everywhere(devices.each(score, (devices.specs(params), BATCH), BATCH)(params, batch))

    return jax.jit(scored)
