"""A checkpoint and texts in, continuations out: what `smelt generate` does."""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from smelt_jax import stop
from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.generate.decode import generate
from smelt_jax.generate.sampling import Sampling
from smelt_jax.generate.text import Stream, before, encodable
from smelt_jax.parallel import processes
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import RunDir
from smelt_jax.storage.files import reach
from smelt_jax.train.load import load, require_visits, tokenizer_of

Show = Callable[[int, str, str], None]  # (index of the prompt, more of its text, why it has ended or '')


@dataclasses.dataclass(frozen=True)
class Continued:
    """Attributes:
    text: the new text, without what ended it; broken UTF-8 is U+FFFD.
    tokens: how many came.
    end: `eos` | `stop` | `length`.
    """

    prompt: str
    text: str
    tokens: int
    end: str


def ask(
    workdir: str,
    step: int | None,
    prompts: Sequence[str],
    settings: Sampling,
    visits: int | None = None,
    pack: str = '',
    mesh: MeshConfig | None = None,
    beyond: bool = False,
    show: Show | None = None,
) -> tuple[list[Continued], dict[str, Any]]:
    """Continuations of the prompts, in their order, and what made them: checkpoint, step, visits.

    Args:
      workdir, step: of the checkpoint; None for the latest step.
      visits: of the loop; None for the config's.
      pack: of the tokenizer, if not the run's own, which must then have the same.
      mesh: of the devices; None for the config's.
      beyond: take prompts longer than a row of training, whose positions the model has not learnt.
      show: is told of text as it comes.

    Raises:
      ValueError, FileNotFoundError: no such run or checkpoint; its tokenizer is gone, or another one; a prompt is too long;
        memory is too short.
    """
    tokenizer, manifest = tokenizer_of(workdir, pack)
    ids = [prompt_tokens(text, tokenizer) for text in prompts]
    longest = max(range(len(ids)), key=lambda index: len(ids[index]))
    most, room = len(ids[longest]), manifest.row_tokens
    if most > room and not beyond:
        raise ValueError(
            f'prompt {longest + 1} has {most} tokens, and a row of training had {room}; shorten it, or give --beyond'
        )
    config = RunDir(workdir).config()
    devices = Devices.of(dataclasses.replace(mesh or config.mesh, buffer=0.0))
    devices.check(config.model)
    visits = config.model.loop.visits if visits is None else visits
    require_visits(workdir, config.model, visits)
    _, params, _, step = load(workdir, step, devices)
    if most + settings.new_tokens - 1 > room and processes.first():
        stop.say(
            f'note: {most} + {settings.new_tokens} tokens; positions from {room} on are beyond the rows of training'
        )
    streams, ends = [Stream(settings.stops) for _ in prompts], [''] * len(prompts)

    def on_token(index: int, tokens: np.ndarray, end: str) -> None:
        ends[index] = end
        if show:
            show(index, streams[index].add(tokenizer.decode(tokens), last=bool(end)), end)

    try:
        made = generate(
            params, config.model, devices, ids, settings, visits, tokenizer.eos, on_token, tokenizer=tokenizer
        )
    except jax.errors.JaxRuntimeError as error:
        if 'RESOURCE_EXHAUSTED' not in str(error):
            raise
        raise ValueError(
            f'no memory for {len(ids)} prompts of up to {most} tokens and {settings.new_tokens} more at {visits} visit(s); '
            f'lower --new_tokens or --chunk, or give fewer prompts'
        ) from None
    texts = [before(tokenizer.decode(tokens), settings.stops).decode('utf-8', 'replace') for tokens in made]
    found = [Continued(*each) for each in zip(prompts, texts, map(len, made), ends, strict=True)]
    return found, {'checkpoint': workdir, 'step': step, 'visits': visits}


def prompt_tokens(text: str, tokenizer: Tokenizer) -> np.ndarray:
    """A prompt as documents were packed: no special token before it. There is none to begin an empty one with but EOS,
    after which documents begin in the text that was packed."""
    ids = tokenizer.encode(text)
    return ids if len(ids) else np.array([tokenizer.eos], np.int32)


def read_prompts(given: Sequence[str], file: str) -> list[str]:
    """Those of the command line, then those of a file: a prompt a line, or JSON lines with `prompt` if its first line is one.

    Raises ValueError, naming the line, or if there is no prompt at all."""
    prompts = list(given)
    if file:
        try:
            lines = reach(file).read_text().removeprefix('\ufeff').split('\n')
        except UnicodeError as error:
            raise ValueError(f'{file}: not UTF-8 ({error})') from None
        lines = lines[:-1] if lines[-1] == '' else lines
        as_json = bool(lines) and lines[0].startswith('{') and '"prompt"' in lines[0]
        prompts += [
            _prompt(line, f'{file}, line {number}') if as_json else line for number, line in enumerate(lines, 1)
        ]
    if not prompts:
        raise ValueError('no prompt: give --prompt=TEXT, or --prompt_file=FILE with some; --prompt= is the empty one')
    return [encodable(prompt, f'prompt {number}') for number, prompt in enumerate(prompts, 1)]


def spelled_out(text: str) -> str:
    r"""`\n`, `\r`, `\t` and `\\` as shells hand them over, and what they stand for; other backslashes stay."""
    names = {'n': '\n', 'r': '\r', 't': '\t', '\\': '\\'}
    return re.sub(r'\\([nrt\\])', lambda match: names[match[1]], text)


def _prompt(line: str, where: str) -> str:
    try:
        value = json.loads(line)
        if isinstance(value, dict) and isinstance(value['prompt'], str):
            return value['prompt']
    except (ValueError, KeyError):
        pass
    raise ValueError(f'{where}: {line[:60]!r} is no JSON object with a text "prompt", as the first line is; mend it')
