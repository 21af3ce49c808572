"""Sizes of looped models: what a design chooses among.

The ladder of Scaling Laws for Looped Mixture of Experts (2026) is printed in tenths of a billion, with embeddings. These
rules give its numbers: 4 KV heads of 64; query heads of 64 as many as fill the width; SwiGLU of hidden width 4 · width,
shared among the 8 experts that a token uses of 8 E; a router column an expert; the first and last two layers outside the loop;
a tied embedding of 202,000; norms left out. All 35 printed sizes come out. (The 8 is not stated: from 5 to 16 all come out.)

The law's N leaves the embedding out, as do its FLOPs (6 N_unroll D): the printed relative costs of A0.3B-1.3B at R = 1 … 5
against A0.6B-2.9B, 0.4, 0.8, 1.1, 1.5 and 1.8, come out so, and not with it. Stored weights have it.
"""

import dataclasses
import json
import math
from collections.abc import Sequence

from etils import epath

from smelt_jax.storage.files import reach

EDGE = 4  # layers outside the loop
HEAD, KV_HEADS, EXPANSION, PER_TOKEN = 64, 4, 4, 8
VOCABULARY = 202_000


@dataclasses.dataclass(frozen=True)
class Size:
    """A model but for its number of experts and its visits. Parameters are counts.

    Attributes:
      name: in tables.
      active: N_act: what a token uses in one pass, embeddings left out.
      looped: N_loop, the part of it inside the loop.
      experts: the part of it that is experts and their router: E times as many are stored.
      embedding: parameters of embedding and head.
      layers, looped_layers: physical ones.
      kv_values: numbers that an executed layer keeps of a token.
    """

    name: str
    active: float
    looped: float
    experts: float
    embedding: float
    layers: int
    looped_layers: int
    kv_values: float

    def total(self, experts: float) -> float:
        """N_total: stored parameters at E = `experts`, embeddings left out."""
        return self.active + (experts - 1) * self.experts

    def share(self, experts: float) -> float:
        """m = N_act / N_total."""
        return self.active / self.total(experts)

    def unrolled(self, visits: float) -> float:
        """N_unroll = N_act + (R − 1) N_loop."""
        return self.active + (visits - 1) * self.looped

    def weight_bytes(self, experts: float, bits: float) -> float:
        """M = bits · N_total / 8, here with the embeddings, which are stored too."""
        return bits * (self.total(experts) + self.embedding) / 8

    def cache_bytes(self, visits: float, tokens: float, bits: float) -> float:
        """Keys and values of `tokens` tokens. Each visit of a layer has slots of its own."""
        return self.kv_values * (self.layers + (visits - 1) * self.looped_layers) * tokens * bits / 8


def rung(name: str, width: int, layers: int) -> Size:
    """A model of the ladder, by the rules above."""
    attention = 2 * width * (width + KV_HEADS * HEAD)
    experts = 3 * EXPANSION * width * width + PER_TOKEN * width
    looped = layers - EDGE
    return Size(
        name=name,
        active=layers * (attention + experts),
        looped=looped * (attention + experts),
        experts=layers * experts,
        embedding=VOCABULARY * width,
        layers=layers,
        looped_layers=looped,
        kv_values=2 * KV_HEADS * HEAD,
    )


LADDER = (
    rung('0.3B', 768, 20),
    rung('0.6B', 1024, 26),
    rung('1.0B', 1280, 32),
    rung('1.6B', 1536, 38),
    rung('2.4B', 1792, 44),
)


def load(file: epath.PathLike) -> Sequence[Size]:
    """Sizes of one's own: a JSON list of objects with the attributes of `Size`. Raises ValueError, naming the file."""
    path, names = reach(file), [field.name for field in dataclasses.fields(Size)]
    try:
        sizes = [Size(**entry) for entry in json.loads(path.read_text())]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f'{path}: {error}; it is a JSON list of objects with {", ".join(names)}') from None
    if not sizes:
        raise ValueError(f'{path}: it has no sizes; it is a JSON list of objects with {", ".join(names)}')
    for place, size in enumerate(sizes):
        _check(size, str(path))
        if size.name in [other.name for other in sizes[:place]]:
            raise ValueError(f'{path}: there are two sizes {size.name!r}; rename one')
    return sizes


def _check(size: Size, path: str) -> None:
    if not isinstance(size.name, str):
        raise ValueError(f'{path}: name is {size.name!r}, not a text')
    for name, value in dataclasses.asdict(size).items():
        number = isinstance(value, int | float) and math.isfinite(value) and value >= 0
        if name != 'name' and not number:
            raise ValueError(f'{path}: {size.name}: {name} is {value!r}, not a number from 0')
    if not (size.looped <= size.active and size.experts <= size.active and size.active > 0):
        raise ValueError(
            f'{path}: {size.name} has looped={size.looped:g} and experts={size.experts:g}, parts of {size.active=:g}'
        )
