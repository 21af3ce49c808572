"""Published tasks through prompts and scorer: what comes out is what one example at a time gives, without padding or cache;
and a model whose probabilities are known scores what is known of them."""

import functools
from collections.abc import Sequence

import numpy as np
import pytest
from models import TINY, edit, params_of
from scores import slow
from task_files import REAL

from smelt_jax.data.tokenizer import ByteTokenizer, Tokenizer, train_bpe
from smelt_jax.evaluate.downstream import picked
from smelt_jax.evaluate.references import Trigram
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.parallel.devices import one_device
from smelt_jax.tasks import metrics
from smelt_jax.tasks.prompts import prompts
from smelt_jax.tasks.reading import examples, shot_pool
from smelt_jax.tasks.request import Request, Scored
from smelt_jax.tasks.tables import tasks_of

pytestmark = [
    pytest.mark.usefixtures('quick'),
    pytest.mark.skipif(not (REAL / 'CORE.csv').exists(), reason='no published task files here'),
]
# One of each kind, of short texts; room for a shot or two.
TASKS = {
    'copa': 'multiple_choice',
    'winograd': 'schema',
    'bigbench_qa_wikidata': 'language_modeling',
    'nq_open': 'generation',
}
COUNT = 50
BYTES = ByteTokenizer()


@functools.cache
def subwords() -> Tokenizer:
    """Of the tasks' own text: few tokens make few lengths, each of which is a program of the slow scorer."""
    texts = [text for task in tasks_of(list(TASKS), REAL) for one in examples(task, REAL) for text in one.contexts]
    return train_bpe(texts, 1000)


def asked(name: str, tokenizer: Tokenizer, room: int):
    (task,) = tasks_of([name], REAL)
    found = examples(task, REAL)
    only = picked(len(found), COUNT)
    made = prompts(task, found, 1, 0, tokenizer, room, shot_pool(task, REAL), only)
    return task, [found[i] for i in only], made


@pytest.mark.parametrize('visits', [1, 2])
@pytest.mark.parametrize(('name', 'kind'), TASKS.items(), ids=list(TASKS))
def test_scores_are_those_of_a_slow_obvious_scorer(name: str, kind: str, visits: int) -> None:
    model = edit(TINY, vocab=subwords().vocab)
    task, chosen, made = asked(name, subwords(), room=32)
    assert (task.kind, len(made)) == (kind, COUNT)
    params, requests = params_of(model), [request for prompt in made for request in prompt.requests]
    found = Scorer(model, params, one_device(), visits).score(requests)
    expected = slow(model, params, requests, visits)
    assert [(one.tokens, one.greedy) for one in found] == [(one.tokens, one.greedy) for one in expected]
    np.testing.assert_allclose([one.log_prob for one in found], [one.log_prob for one in expected], atol=1e-4)
    assert len(chosen) == COUNT


class Letters:
    """The byte trigram as a scorer, a product over the span."""

    def __init__(self, trigram: Trigram) -> None:
        self._trigram = trigram

    def score(self, requests: Sequence[Request]) -> list[Scored]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Scored:
        text = BYTES.decode(request.tokens)
        rows = [self._trigram.probabilities(text[:at]) for at in range(request.start, len(text))]
        found = [row[byte] for row, byte in zip(rows, text[request.start :], strict=True)]
        greedy = all(row.argmax() == byte for row, byte in zip(rows, text[request.start :], strict=True))
        return Scored(float(np.log(found).sum()), len(found), bool(greedy))


@pytest.mark.parametrize('name', TASKS)
def test_completion_of_a_trigram_is_what_its_counts_say(name: str) -> None:
    """From the counts themselves, over the gold continuations' bytes, each after the whole text before it."""
    task, chosen, made = asked(name, BYTES, room=96)
    trigram = Trigram.fit(text.encode() for one in chosen for text in one.contexts)
    scorer = Letters(trigram)
    outcomes = [
        metrics.outcome(task, one, prompt, scorer.score(prompt.requests), '' if task.kind == 'generation' else None)
        for one, prompt in zip(chosen, made, strict=True)
    ]
    bits, count = 0.0, 0
    for one, prompt in zip(chosen, made, strict=True):
        gold = prompt.requests[one.gold]
        whole, before = (BYTES.decode(gold.tokens[:end]) for end in (None, gold.start))
        length = len(whole) - len(before)
        bits += trigram.bits_per_byte([whole]) * len(whole) - trigram.bits_per_byte([before]) * len(before)
        count += length
    summary = metrics.summary(task, chosen, outcomes)
    assert summary.completion_tokens == count
    assert summary.completion == pytest.approx(bits * np.log(2) / count, rel=1e-9)
