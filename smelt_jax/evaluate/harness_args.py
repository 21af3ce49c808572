"""What lm-evaluation-harness says to a model, in our words: --model_args and gen_kwargs."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from smelt_jax.generate.sampling import Sampling
from smelt_jax.parallel.config import MeshConfig

NEW_TOKENS = 256  # as the harness's own models generate where a task does not say how many
LENGTHS = ('max_gen_toks', 'max_new_tokens', 'max_tokens', 'max_completion_tokens')  # the first one given counts
DRAWS = ('until', 'do_sample', 'temperature', 'top_k', 'top_p')
MESH = ('replica', 'fsdp', 'expert')


@dataclasses.dataclass(frozen=True)
class Args:
    """What --model_args says.

    Attributes:
      checkpoint: DIR[@STEP], a run directory and the step if it is not the latest.
      visits: of the loop; None for those of training.
      pack: another pack of the same tokenizer; '' for the run's own.
      batch_tokens: that each device scores at a time.
      batch_rows: prompts that are continued at a time.
      room: tokens of the longest request, what is generated included; None for those of a row in training.
      seed: of what is drawn.
      replica, fsdp, expert: of the mesh of devices, -1 for what the others leave; the run's own mesh if none is given.
    """

    checkpoint: str
    visits: int | None = None
    pack: str = ''
    batch_tokens: int = 8192
    batch_rows: int = 64
    room: int | None = None
    seed: int = 0
    replica: int | None = None
    fsdp: int | None = None
    expert: int | None = None

    def mesh(self) -> MeshConfig | None:
        """As --mesh would have it."""
        given = {name: getattr(self, name) for name in MESH if getattr(self, name) is not None}
        return MeshConfig(**given) if given else None


LEAST = {'visits': 1, 'batch_tokens': 1, 'batch_rows': 1, 'room': 2, 'seed': 0, **dict.fromkeys(MESH, -1)}


def arguments(given: Mapping[str, Any]) -> Args:
    """Checked. Raises ValueError, naming the argument."""
    known = [field.name for field in dataclasses.fields(Args)]
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean {near[0]}?' if near else f'there are {", ".join(known)}'
            raise ValueError(f'model_args: there is no {name}; {hint}')
        if name in LEAST and not (type(value) is int and value >= LEAST[name]):
            raise ValueError(f'model_args: {name}={value} is no whole number from {LEAST[name]} on')
    if given.get('checkpoint') in (None, ''):
        raise ValueError('model_args: checkpoint=DIR[@STEP] is missing, a run directory')
    if given.get('pack', '') is None:
        raise ValueError('model_args: pack=None is no folder; leave it out for the pack of the run')
    # The harness reads a folder whose name is a number as one.
    texts = {name: str(value) for name, value in given.items() if name not in LEAST}
    args = Args(**{**given, **texts})
    if mesh := args.mesh():
        mesh.check()
    return args


def check_flags(batch_size: Any, max_batch_size: Any, device: Any) -> None:
    """Raises ValueError for flags of the harness that would have no effect. What it says by itself, a batch
    size of 1 and cuda:0, is let pass."""
    if max_batch_size is not None or not (batch_size in (None, 1, '1') or str(batch_size).startswith('auto')):
        raise ValueError(
            f'batch_size={batch_size}, max_batch_size={max_batch_size}: leave them out; batches are counted in tokens: '
            f'--model_args …,batch_tokens=N, and batch_rows=N where text is generated'
        )
    if device not in (None, 'cuda:0'):
        raise ValueError(f'device={device}: leave it out; jax takes all devices, or those that JAX_PLATFORMS says')


def sampling(asked: Mapping[str, Any], seed: int) -> Sampling:
    """How a prompt is continued, from a request's gen_kwargs. As with the harness's own models: `do_sample=False` overrules a
    temperature; one above 0 draws if `do_sample` is not given; `do_sample=True` alone is a temperature of 1.

    Raises ValueError, naming the key, for what is not known here: it would change what is generated.
    """
    for name, value in asked.items():
        if name not in (*LENGTHS, *DRAWS) and (name, value) != ('num_beams', 1):
            known = ', '.join((LENGTHS[0], *DRAWS))
            raise ValueError(f'gen_kwargs: {name}={value} is not known here; leave it out. There are {known}')
    said = {name: value for name, value in asked.items() if value is not None}
    until, draws = said.get('until', ()), said.get('do_sample', _number(said, 'temperature', 0) > 0)
    if not isinstance(draws, bool):
        raise ValueError(f'gen_kwargs: do_sample={draws!r} is neither true nor false')
    length = next((name for name in LENGTHS if name in said), LENGTHS[0])
    return Sampling(
        new_tokens=int(_number(said, length, NEW_TOKENS)),
        temperature=_number(said, 'temperature', 1) if draws else 0.0,
        top_k=int(_number(said, 'top_k', 0)),
        top_p=_number(said, 'top_p', 1),
        seed=seed,
        stops=(until,) if isinstance(until, str) else tuple(until),
    )


def _number(said: Mapping[str, Any], name: str, default: float) -> float:
    try:
        return float(said.get(name, default))
    except (TypeError, ValueError):
        raise ValueError(f'gen_kwargs: {name}={said[name]!r} is no number') from None
