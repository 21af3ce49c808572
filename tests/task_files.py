"""Tasks, examples and scorers by hand, and where the real task files are."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from etils import epath

from smelt_jax.data.tokenizer import EOS_TEXT, ByteTokenizer, SubwordTokenizer, Tokenizer, train_bpe
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.request import Request, Scored
from smelt_jax.tasks.task import Task

# CORE.csv, EXTRA.csv and their files: SMELT_TEST_TASKS, or shared/data/eval beside the repository.
REAL = epath.Path(os.environ.get('SMELT_TEST_TASKS') or Path(__file__).parents[2] / 'shared' / 'data' / 'eval')

LINES = [
    'Question: what is the colour of snow?\nAnswer: white',
    "It's 12 + 30 = 42, isn't it?\n\n  Then the answer is 42.",
    'Ångström said: „the dog and the cat“ — naïve façade 日本語',
] * 3
BYTES = ByteTokenizer()
BPE = train_bpe(LINES, 400)


def with_split(pattern: str, *steps: tokenizers.pre_tokenizers.PreTokenizer) -> SubwordTokenizer:
    """A byte-level BPE that parts words as a published tokenizer does."""
    hf = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), 'isolated')
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    hf.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*steps, split, byte_level])
    hf.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    hf.train_from_iterator(
        LINES, tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=[EOS_TEXT], initial_alphabet=alphabet)
    )
    return SubwordTokenizer(hf.to_str(), 'made')


WILD = with_split('.*')  # lines to their end, whatever they are: words go together, and so may not be cut


def task(kind: str = 'multiple_choice', **changes: Any) -> Task:
    """One by hand: colours, 4 choices."""
    return Task(**{'name': 'colours', 'kind': kind, 'file': 'colours.jsonl', 'shots': 0, 'chance': 0.25} | changes)


def example(kind: str, i: int, choices: int = 4) -> Example:
    """The i-th of a kind; its gold candidate is the i-th modulo `choices`."""
    named = tuple(f'colour {i} {"x" * j}{j}' for j in range(choices))
    gold, category = i % choices, f'c{i % 3}'
    if kind == 'multiple_choice':
        return Example((f'Question {i}:',), named, gold, category=category)
    if kind == 'schema':
        return Example(tuple(f'Of {name}' for name in named), (f'is seen {i}.',), gold, category=category)
    if kind == 'language_modeling':
        return Example((f'The colour {i} is',), (f'bright {i}',), category=category)
    return Example((f'Which colour {i}?',), (f'red {i}',), 0, (f'red {i}', f'Rot {i}'), f'Of {i} it is', category)


def rows(kind: str, count: int = 12) -> list[dict[str, Any]]:
    """JSON of examples."""
    found = []
    for i in range(count):
        made = example(kind, i)
        fields: dict[str, Any] = {
            'multiple_choice': {'query': made.contexts[0], 'choices': list(made.continuations), 'gold': made.gold},
            'schema': {
                'context_options': list(made.contexts),
                'continuation': made.continuations[0],
                'gold': made.gold,
            },
            'language_modeling': {'context': made.contexts[0], 'continuation': made.continuations[0]},
            'generation': {
                'context': made.contexts[0],
                'answer': made.answers[:1][0] if made.answers else '',
                'aliases': list(made.answers[1:]),
                'chain_of_thought': made.reasoning,
            },
        }[kind]
        found.append({**fields, 'category': made.category})
    return found


def write(file: Path, lines: Iterable[Mapping[str, Any] | str]) -> epath.Path:
    """JSON Lines, or texts as they are."""
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    file.write_text(''.join(f'{text}\n' for text in texts), encoding='utf-8')
    return epath.Path(file)


class Oracle:
    """Knows the gold texts: their tokens have probability `sure`, those of others are less probable."""

    def __init__(self, tokenizer: Tokenizer, golds: Iterable[str], sure: float = 0.9):
        self._tokenizer, self._golds, self._sure = tokenizer, set(golds), sure

    def score(self, requests: Sequence[Request]) -> list[Scored]:
        found = []
        for request in requests:
            right = self._tokenizer.decode(request.tokens).decode() in self._golds
            count = len(request.tokens) - request.start
            found.append(Scored(count * float(np.log(self._sure if right else 1e-3)), count, right))
        return found


class Guess:
    """Says anything: independent of the texts, but for their lengths."""

    def __init__(self, seed: int = 0):
        self._random = np.random.default_rng(seed)

    def score(self, requests: Sequence[Request]) -> list[Scored]:
        counts = [len(request.tokens) - request.start for request in requests]
        return [Scored(-count * float(self._random.uniform(1, 9)), count, False) for count in counts]
