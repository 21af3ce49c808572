"""Metrics: who knows all has a centered accuracy of 1, who guesses has about 0, on each kind."""

import math

import numpy as np
import pytest
from task_files import BPE, Guess, Oracle, example, task

from smelt_jax.tasks.example import Example
from smelt_jax.tasks.metrics import (
    Outcome,
    answer_in,
    best,
    centered,
    core,
    is_answer,
    normalised,
    outcome,
    summary,
)  # fmt: skip
from smelt_jax.tasks.prompts import prompts
from smelt_jax.tasks.request import Scored, Scores
from smelt_jax.tasks.task import KINDS, NORMALISATIONS


def outcomes(
    kind: str, scorer: Scores | None, count: int, generated: str | None = None, **changes: object
) -> list[Outcome]:
    """Of `count` examples; without a scorer, of an oracle."""
    some, how = [example(kind, i) for i in range(count)], task(kind, **changes)
    made = prompts(how, some, 0, 0, BPE, 1000)
    golds = [BPE.decode(p.requests[e.gold].tokens).decode() for p, e in zip(made, some, strict=True)]
    scorer = scorer or Oracle(BPE, golds)
    scored = scorer.score([request for prompt in made for request in prompt.requests])
    found = []
    for each, prompt in zip(some, made, strict=True):
        mine, scored = scored[: len(prompt.requests)], scored[len(prompt.requests) :]
        text = generated if generated is not None or kind != 'generation' else f' {each.answers[-1].upper()}!\nWhich'
        found.append(outcome(how, each, prompt, mine, text))
    return found


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('normalise', NORMALISATIONS)
def test_an_oracle_is_centered_on_one(kind: str, normalise: str) -> None:
    some = [example(kind, i) for i in range(30)]
    made = summary(task(kind), some, outcomes(kind, None, 30, normalise=normalise))
    assert (made.accuracy, made.centered, made.error, made.examples) == (1.0, 1.0, 0.0, 30)
    assert made.completion == pytest.approx(-math.log(0.9))
    assert made.completion_sum == pytest.approx(made.completion * made.completion_tokens)
    assert list(made.by_category) == ['c0', 'c1', 'c2']
    assert sum(each.completion_tokens for each in made.by_category.values()) == made.completion_tokens
    assert sum(each.examples for each in made.by_category.values()) == 30


@pytest.mark.parametrize('kind', KINDS)
def test_a_guess_is_centered_on_zero(kind: str) -> None:
    count, chance = 2000, 0.25 if kind in ('multiple_choice', 'schema') else 0.0
    some = [example(kind, i) for i in range(count)]
    made = summary(task(kind, chance=chance), some, outcomes(kind, Guess(), count, 'green'))
    assert made.error is not None
    assert made.centered is not None
    assert abs(made.centered) <= 4 * made.error / (1 - chance)
    assert made.error == pytest.approx(math.sqrt(chance * (1 - chance) / count), rel=0.2)


def test_what_is_compared_decides() -> None:
    #                     characters 2, 9, 4; bytes 2, 9, 8; tokens 1, 3, 9
    texts = ['no', 'certainly', '日本éa']
    assert [len(text.encode()) for text in texts] == [2, 9, 9]
    scored = [Scored(-3.0, 1, False), Scored(-6.3, 3, False), Scored(-5.0, 9, False)]
    assert [best(scored, texts, how) for how in ('raw', 'character', 'byte', 'token')] == [0, 1, 2, 2]
    assert best([Scored(-1.0, 1, False)] * 3, texts, 'raw') == 0
    with pytest.raises(ValueError, match='is no number'):
        best([Scored(math.nan, 1, False)] * 3, texts, 'raw')
    with pytest.raises(ValueError, match="normalise='words'"):
        best(scored, texts, 'words')


def test_a_schema_compares_whole_log_probabilities() -> None:
    how, each = task('schema', normalise='token'), Example(('a', 'b'), ('c',), 1)
    (prompt,) = prompts(how, [each], 0, 0, BPE, 100)
    assert outcome(how, each, prompt, [Scored(-4.0, 4, False), Scored(-3.0, 1, False)]) == Outcome(1.0, 3.0, 1)
    with pytest.raises(ValueError, match='1 scores for the 2 requests'):
        outcome(how, each, prompt, [Scored(-4.0, 4, False)])


def test_language_modelling_is_right_if_greedy() -> None:
    how, each = task('language_modeling'), example('language_modeling', 0)
    (prompt,) = prompts(how, [each], 0, 0, BPE, 100)
    assert outcome(how, each, prompt, [Scored(-9.0, 3, True)]) == Outcome(1.0, 9.0, 3)
    assert outcome(how, each, prompt, [Scored(-0.1, 3, False)]).right == 0.0
    assert outcome(how, each, prompt, [Scored(-9.0, 3, True)]).completion == 3.0


def test_sums_travel_and_one_division_comes_at_the_end() -> None:
    some = [example('language_modeling', i) for i in range(2)]
    made = summary(task('language_modeling', chance=0.0), some, [Outcome(1.0, 10.0, 1), Outcome(0.0, 2.0, 3)])
    assert made.completion == 3.0
    assert (made.right, made.accuracy, made.error) == (1.0, 0.5, 0.5)
    assert np.mean([Outcome(1.0, 10.0, 1).completion, Outcome(0.0, 2.0, 3).completion]) != 3.0
    alone = summary(task('language_modeling'), some[:1], [Outcome(1.0, 10.0, 1)])
    assert alone.error is None
    with pytest.raises(ValueError, match='1 outcomes of 2 examples'):
        summary(task(), some, [Outcome(1.0, 1.0, 1)])


def test_no_category_no_categories() -> None:
    some = [Example(('a',), ('b',))] * 2
    assert summary(task('language_modeling'), some, [Outcome(1.0, 1.0, 1)] * 2).by_category == {}


def test_centered() -> None:
    assert centered(0.25, 0.25) == 0.0
    assert centered(1.0, 0.62) == 1.0
    assert centered(0.0, 0.5) == -1.0
    with pytest.raises(ValueError, match=r'chance=25 is not in \[0, 1\); it is a fraction, not per cent'):
        centered(0.5, 25)


def test_core_says_how_many_of_how_many() -> None:
    some, tasks = [Example(('a',), ('b',))] * 2, [task('language_modeling', name=name, chance=0.0) for name in 'abc']
    half = summary(tasks[0], some, [Outcome(1.0, 1.0, 1), Outcome(0.0, 1.0, 1)])
    unasked = summary(tasks[0], some, [Outcome(None, 1.0, 1)] * 2)
    assert (unasked.accuracy, unasked.error, unasked.centered, unasked.completion) == (None, None, None, 1.0)
    assert core({'a': half, 'b': half._replace(centered=1.0), 'other': half}, tasks) == (0.75, 2, 3)
    assert core({'a': half, 'b': unasked}, tasks) == (0.5, 1, 3)
    assert core({}, tasks) == (None, 0, 3)
    with pytest.raises(ValueError, match='1 of 2 examples of a have no text'):
        summary(tasks[0], some, [Outcome(None, 1.0, 1), Outcome(1.0, 1.0, 1)])


@pytest.mark.parametrize(
    ('text', 'plain'),
    [
        ('The  Beatles!', 'beatles'),
        (' an apple\n a day', 'apple day'),
        ('theatre', 'theatre'),
        ('1,234.50', '1234.50'),
        ('-5', '-5'),
        ('x-ray', 'xray'),
        ('$12.', '12'),
        ('A', 'a'),
        ('a.', 'a'),
        ('>', '>'),
        (' ', ''),
    ],
)
def test_normalised(text: str, plain: str) -> None:
    assert normalised(text) == plain


@pytest.mark.parametrize(
    ('changes', 'generated', 'answer'),
    [
        ({}, ' red 1\nWhich colour 2? blue', 'red 1'),
        ({}, '\n red 1', 'red 1'),
        ({'question': 'Q: '}, ' red 1\nmore\nQ: next', 'red 1'),
        ({'reasoning': ' #### ', 'question': 'Q: '}, 'It is\n3 #### 4, so #### 7\nQ: x #### 8', '7'),
        ({'reasoning': ' #### '}, 'It is\n3 #### 7\nMore', '7'),
        ({'reasoning': ' #### '}, 'It is\n3', 'It is\n3'),
        ({}, '', ''),
    ],
)
def test_the_answer_in_a_text(changes: dict[str, str], generated: str, answer: str) -> None:
    assert answer_in(task('generation', **changes), generated) == answer


def test_any_of_the_answers_is_right_and_nothing_is_wrong() -> None:
    each = Example(('Which?',), ('red',), 0, ('red', 'Rot', ' '))
    assert is_answer(task('generation'), each, 'The rot.\n')
    assert not is_answer(task('generation'), each, 'green')
    assert not is_answer(task('generation'), each, 'red 1')
    assert not is_answer(task('generation'), each, ' ')
