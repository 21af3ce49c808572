"""A checkpoint as a model of EleutherAI's lm-evaluation-harness, named `smelt`. Nothing else here imports lm_eval.

What is scored is what `smelt evaluate` scores of the same texts: context and continuation are split by
`smelt_jax.tasks.encoding`, and a question that is too long is cut as `smelt_jax.tasks.prompts` cuts it. A request has one
beginning: its first token, or EOS if that one is to be predicted.
"""

import collections
import functools
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import lm_eval.models  # noqa: F401  (it registers its own only where none is registered yet)
import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from smelt_jax.evaluate.bar import Bar
from smelt_jax.evaluate.harness_args import arguments, check_flags, sampling
from smelt_jax.evaluate.opened import open_checkpoint
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.generate.ask import prompt_tokens
from smelt_jax.generate.decode import generate
from smelt_jax.generate.sampling import Sampling
from smelt_jax.generate.text import before
from smelt_jax.storage.files import at_step
from smelt_jax.tasks.encoding import Encoder, shortened
from smelt_jax.tasks.request import Request, Scored


@register_model('smelt')
class Smelt(LM):
    """`harness_args.Args` says what --model_args may hold."""

    def __init__(
        self,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: Any = None,
        trust_remote_code: Any = None,  # is said of data sets, and told to every model
        **given: Any,
    ) -> None:
        """Raises ValueError or FileNotFoundError, one line, for what cannot be evaluated so."""
        super().__init__()
        check_flags(batch_size, max_batch_size, device)
        args = self._args = arguments(given)
        workdir, step = at_step(args.checkpoint, 'model_args: checkpoint')
        opened = self._opened = open_checkpoint(workdir, step, args.visits, args.pack, args.mesh())
        self._visits = args.visits or opened.run.model.loop.visits
        self._room = args.room or opened.manifest.row_tokens
        self._tokenizer = opened.tokenizer
        self._encoder = Encoder(self._tokenizer)
        self._scorer = Scorer(opened.run.model, opened.params, opened.devices, self._visits, args.batch_tokens)
        self._cut: dict[str, set[int]] = collections.defaultdict(set)  # documents of a task that had no room

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether its tokens are the most probable ones) of each.

        What has no room is cut from the left of the context, the requests of one document alike. ValueError, naming task and
        document, if a continuation alone has none.
        """
        splits = [self._encoder.split(*request.args) for request in requests]
        for indices in by_document(requests):
            asker = requests[indices[0]]
            try:
                kept, cut = shortened([splits[index] for index in indices], self._room)
            except ValueError as error:
                raise ValueError(f'document {asker.doc_id} of task {asker.task_name}: {error}') from None
            self._note(asker, cut)
            for index, split in zip(indices, kept, strict=True):
                splits[index] = split
        scored = self._scored('loglikelihood', [Request(*split, '') for split in splits])
        return [(one.log_prob, one.greedy) for one in scored]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """The log-probability of each whole text, by `windows`. That of an empty one is 0."""
        eos = self._tokenizer.eos
        parts = [list(windows(self._encoder.encode(request.args[0]), eos, self._room)) for request in requests]
        scored = iter(self._scored('loglikelihood_rolling', list(itertools.chain(*parts))))
        return [sum((one.log_prob for one in itertools.islice(scored, len(part))), 0.0) for part in parts]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """What comes after each context, up to the first of `until`, which is left out.

        Of a context that has no room the last tokens are read. White space at its end is read too, as `smelt generate` does.
        What is drawn depends on the seed, and on the place of the request among those of the same gen_kwargs.
        """
        alike: dict[Sampling, list[int]] = collections.defaultdict(list)
        for index, request in enumerate(requests):
            alike[sampling(request.args[1], self._args.seed)].append(index)
        prompts = {
            settings: [self._prompt(requests[index], settings.new_tokens) for index in indices]
            for settings, indices in alike.items()
        }
        found = [''] * len(requests)
        with Bar() as bar:
            done = itertools.count(1)

            def on_token(_: int, __: np.ndarray, end: str) -> None:
                if end:
                    bar.say('generate_until', next(done), len(requests))

            for settings, indices in alike.items():
                for index, text in zip(indices, self._continued(prompts[settings], settings, on_token), strict=True):
                    found[index] = text
        return found

    @property
    def tokenizer_name(self) -> str:
        """What tells its tokenizer from others."""
        return self._tokenizer.fingerprint

    def chat_template(self, chat_template: bool | str = False) -> str:
        """None. ValueError if one is wanted."""
        return _no_chat() if chat_template else ''

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """ValueError."""
        return _no_chat()

    def get_model_info(self) -> dict[str, Any]:
        """What joins the harness's results: which checkpoint, where it stands, and how many documents were cut."""
        cut = {name: len(documents) for name, documents in self._cut.items()}
        return {'smelt': {**self._opened.record('lm_eval', self._visits), 'room': self._room, 'cut': cut}}

    def _scored(self, what: str, requests: Sequence[Request]) -> list[Scored]:
        if not requests:
            return []
        with Bar() as bar:
            return self._scorer.score(requests, functools.partial(bar.say, what))

    def _prompt(self, request: Instance, new_tokens: int) -> np.ndarray:
        left = self._room - new_tokens
        if left < 1:
            raise ValueError(
                f'task {request.task_name}: {new_tokens} new tokens leave nothing of room={self._room} for a prompt; give '
                f'--gen_kwargs max_gen_toks=N, or more room'
            )
        tokens = prompt_tokens(request.args[0], self._tokenizer)
        self._note(request, len(tokens) - left)
        return tokens[-left:]

    def _continued(self, prompts: Sequence[np.ndarray], settings: Sampling, on_token: Any) -> list[str]:
        opened, tokenizer = self._opened, self._tokenizer
        made = generate(
            opened.params,
            opened.run.model,
            opened.devices,
            prompts,
            settings,
            self._visits,
            tokenizer.eos,
            on_token,
            tokenizer=tokenizer,
            batch_rows=self._args.batch_rows,
        )
        return [before(tokenizer.decode(tokens), settings.stops).decode('utf-8', 'replace') for tokens in made]

    def _note(self, request: Instance, cut: int) -> None:
        """Keeps in mind that a document was cut, and says so of the first one of a task."""
        if cut > 0:
            if request.task_name not in self._cut:
                logging.getLogger(__name__).warning(
                    'documents of task %s are cut on the left to %d tokens; the results say how many',
                    request.task_name,
                    self._room,
                )
            self._cut[request.task_name].add(request.doc_id)


def windows(tokens: np.ndarray, eos: int, room: int) -> Iterator[Request]:
    """A text in requests of `room` tokens at most, each token asked for once. The first one follows EOS, the first one of any
    later window the token before it; the last window begins early enough to be as long as the others. These are lm_eval's
    windows for a context of one token."""
    for pair in get_rolling_token_windows(tokens.tolist(), eos, max_seq_len=room - 1, context_len=1):
        context, asked = make_disjoint_window(pair)
        yield Request(np.array(context + asked, np.int32), len(context), '')


def by_document(requests: Sequence[Instance]) -> Iterable[list[int]]:
    """Indices of the requests that a task makes of one document."""
    found: dict[tuple, list[int]] = collections.defaultdict(list)
    for index, request in enumerate(requests):
        found[request.task_name, request.doc_id].append(index)
    return found.values()


def main() -> None:
    """The command line of lm_eval, as it stands in sys.argv."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


def _no_chat() -> NoReturn:
    raise ValueError('a smelt checkpoint is pretrained, and has no chat template; leave --apply_chat_template out')
