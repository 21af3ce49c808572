"""What to try first when a step does not fit: the least dear setting that is estimated to save enough."""

import dataclasses
from collections.abc import Iterator, Mapping

from smelt_jax.aot.units import size
from smelt_jax.budget.parts import parameters_of
from smelt_jax.config import RunConfig

FLOAT32 = 4
LEAST_CHUNK, LEAST_TOKENS = 128, 1024


@dataclasses.dataclass(frozen=True)
class Remedy:
    """`setting` saves about `saves` bytes of a device; `price` is what it costs."""

    setting: str
    saves: float
    price: str


def advice(remedies: list[Remedy], excess: float) -> str:
    """The first of `remedies` that saves `excess` bytes; if none does alone, as few as do together."""
    enough = [remedy for remedy in remedies if remedy.saves >= excess]
    chosen = enough[:1]
    if not enough:
        for remedy in sorted(remedies, key=lambda remedy: -remedy.saves):
            if sum(each.saves for each in chosen) < excess:
                chosen.append(remedy)
    saved = sum(remedy.saves for remedy in chosen)
    if saved < excess:
        return 'no setting of the run helps alone: take more chips, or such with more memory'
    settings = ' and '.join(remedy.setting for remedy in chosen)
    return f'try {settings}: about {size(saved)} less, {", ".join(remedy.price for remedy in chosen)}'


def remedies_of(
    run: RunConfig, sizes: Mapping[str, int], exchange: str, arguments: float, needs: float, excess: float
) -> list[Remedy]:
    """What could be changed about `run`, the least dear first, each with an estimate of what it saves.

    Args:
      sizes: of the mesh, by axis.
      exchange: `ragged` or `gather`.
      arguments: bytes of state and batch on a device.
      needs: bytes that a device would have to have.
      excess: by which that is too much.
    """
    if arguments >= needs - excess:  # nothing but a smaller state can help
        return list(_smaller_states(run, sizes, arguments, needs, excess))
    found = [
        _smaller_chunk(run, sizes, excess),
        _fewer_at_a_time(run, sizes, exchange, excess),
        _more_microbatches(run, sizes, arguments, needs, excess),
        _remat(run, sizes),
        _bounded_buffer(run, sizes, exchange),
        *_smaller_states(run, sizes, arguments, needs, excess),
    ]
    return [remedy for remedy in found if remedy is not None]


def _rows(run: RunConfig, sizes: Mapping[str, int]) -> int:
    devices = sizes['replica'] * sizes['fsdp'] * sizes['expert']
    return run.data.batch_rows // devices // run.optim.accumulate


def _item(run: RunConfig) -> int:
    return 2 if run.model.dtype == 'bfloat16' else FLOAT32


def _chunk_bytes(run: RunConfig, tokens: int) -> float:
    """Of a chunk: logits in float32, and their gradient in the model's dtype."""
    return float(tokens * run.model.vocab * (FLOAT32 + _item(run)))


def _smaller_chunk(run: RunConfig, sizes: Mapping[str, int], excess: float) -> Remedy | None:
    now = run.loss.chunk_tokens  # shorter input is padded to it
    smaller = [now >> halvings for halvings in range(1, 32) if now >> halvings >= LEAST_CHUNK]
    if not smaller:
        return None
    saved = {chunk: _chunk_bytes(run, now - chunk) for chunk in smaller}
    chunk = next((chunk for chunk in smaller if saved[chunk] >= excess), smaller[-1])
    return Remedy(f'--config.loss.chunk_tokens={chunk}', saved[chunk], 'smaller products in the head')


def _parameters(run: RunConfig, sizes: Mapping[str, int]) -> tuple[float, float]:
    """Of a layer, with the experts of one group, and of embedding and head."""
    stored = parameters_of(run.model)[0]
    layer = (stored.attention + stored.router + stored.experts / sizes['expert']) / run.model.layers
    return layer, stored.embedding + stored.head


def _fixed(run: RunConfig, sizes: Mapping[str, int]) -> float:
    """Bytes that a device needs whatever its rows: parameters where they are computed with, and a chunk of the loss."""
    return _item(run) * sum(_parameters(run, sizes)) + _chunk_bytes(run, run.loss.chunk_tokens)


def _more_microbatches(
    run: RunConfig, sizes: Mapping[str, int], arguments: float, needs: float, excess: float
) -> Remedy | None:
    rows = _rows(run, sizes)
    factors = [factor for factor in range(2, rows + 1) if rows % factor == 0]
    if not factors:
        return None
    layer, outer = _parameters(run, sizes)
    gradients = FLOAT32 * (layer * run.model.layers + outer) / sizes['fsdp']
    activations = needs - arguments - _fixed(run, sizes) - gradients
    sums = gradients if run.optim.accumulate == 1 else 0.0
    saved = {factor: max(activations, 0.0) * (1 - 1 / factor) - sums for factor in factors}
    factor = next((factor for factor in factors if saved[factor] >= excess), factors[-1])
    price = 'parameters gathered as often' if sizes['fsdp'] > 1 else 'smaller products'
    remedy = Remedy(f'--config.optim.accumulate={factor * run.optim.accumulate}', saved[factor], price)
    return remedy if remedy.saves > 0 else None


def _remat(run: RunConfig, sizes: Mapping[str, int]) -> Remedy | None:
    model, item = run.model, _item(run)
    if model.remat == 'layer':
        return None
    heads = model.attention
    wide = 2 * (heads.heads + heads.kv_heads) * heads.head_dim + 6 * model.width
    hidden = 2 * model.experts.per_token * model.experts.width
    kept = item * wide + (item * hidden if model.remat == 'none' else 0)
    tokens = _rows(run, sizes) * run.pack.row_tokens
    return Remedy('--config.model.remat=layer', float(model.executed_layers * tokens * kept), 'a forward pass more')


def _received(run: RunConfig, sizes: Mapping[str, int], exchange: str, tokens: int) -> float:
    """Bytes of what a device holds of `tokens` tokens that are exchanged at a time, its own ones counted."""
    group, model = sizes['expert'], run.model
    if exchange != 'ragged':  # tokens of all, and what is made of them in float32
        return float(tokens * group * model.width * (_item(run) + FLOAT32))
    room = min(run.mesh.buffer or group, group)
    # Rows that came, rows made of them in float32 and in the model's dtype, and their hidden activations.
    row = (2 * _item(run) + FLOAT32) * model.width + _item(run) * 2 * model.experts.width
    return room * tokens * model.experts.per_token * row


def _fewer_at_a_time(run: RunConfig, sizes: Mapping[str, int], exchange: str, excess: float) -> Remedy | None:
    """Chunks of tokens, none below a thousand: the products of the experts would become small."""
    tokens = _rows(run, sizes) * run.pack.row_tokens
    now = min(run.mesh.chunk_tokens or tokens, tokens)
    smaller = [now >> halvings for halvings in range(1, 32) if now >> halvings >= LEAST_TOKENS]
    if sizes['expert'] == 1 or not smaller:
        return None
    saved = {chunk: _received(run, sizes, exchange, now - chunk) for chunk in smaller}
    chunk = next((chunk for chunk in smaller if saved[chunk] >= excess), smaller[-1])
    price = 'smaller products of the experts' + ', tokens sent once more' * (run.model.remat == 'none')
    return Remedy(f'--config.mesh.chunk_tokens={chunk}', saved[chunk], price)


def _bounded_buffer(run: RunConfig, sizes: Mapping[str, int], exchange: str) -> Remedy | None:
    """A device's room for the choices it receives: in the worst case all of its group."""
    group = sizes['expert']
    room = min(run.mesh.buffer or group, group)
    if exchange != 'ragged' or room <= 2:
        return None
    tokens = _rows(run, sizes) * run.pack.row_tokens
    saved = _received(run, sizes, exchange, min(run.mesh.chunk_tokens or tokens, tokens)) * (1 - 2 / room)
    return Remedy('--config.mesh.buffer=2', saved, 'what finds no room is dropped, and counted')


def _smaller_states(
    run: RunConfig, sizes: Mapping[str, int], arguments: float, needs: float, excess: float
) -> Iterator[Remedy]:
    replica, fsdp, expert = sizes['replica'], sizes['fsdp'], sizes['expert']
    copies = replica // run.mesh.slices
    if copies > 1 and run.model.width % (fsdp * copies) == 0:
        setting = f'--config.mesh.replica={run.mesh.slices} --config.mesh.fsdp={fsdp * copies}'
        yield Remedy(setting, arguments * (1 - 1 / copies), 'parameters gathered from more devices')
    fixed = min(_fixed(run, sizes), needs)  # as much on any number of chips
    room = max(needs - excess - fixed, 1)
    times = next(2**power for power in range(1, 64) if (needs - fixed) / 2**power <= room)
    rows = run.data.batch_rows % (replica * fsdp * expert * times) == 0
    for axis, whole in {'fsdp': run.model.width, 'expert': run.model.experts.count}.items():
        if rows and whole % (sizes[axis] * times) == 0:
            setting = f'{times} times the chips with --config.mesh.{axis}={sizes[axis] * times}'
            yield Remedy(setting, (needs - fixed) * (1 - 1 / times), 'at the same batch')
            return
