"""Prompts: shots are drawn, laid out, and dropped, by the rules; what is scored is the continuation."""

import pytest
from task_files import BPE, BYTES, REAL, WILD, example, task

from smelt_jax.data.tokenizer import Tokenizer
from smelt_jax.tasks.example import Example
from smelt_jax.tasks.prompts import openings, prompts
from smelt_jax.tasks.reading import examples, shot_pool
from smelt_jax.tasks.tables import tasks_of
from smelt_jax.tasks.task import KINDS


def texts(kind: str, shots: int, tokenizer: Tokenizer = BYTES, count: int = 12, **changes: object) -> list[list[str]]:
    """Of each example, the texts of its requests."""
    some = [example(kind, i) for i in range(count)]
    made = prompts(task(kind, **changes), some, shots, 0, tokenizer, 10_000)
    return [[tokenizer.decode(request.tokens).decode() for request in prompt.requests] for prompt in made]


def test_layout() -> None:
    assert texts('multiple_choice', 0)[1][:2] == ['Question 1: colour 1 0', 'Question 1: colour 1 x1']
    assert texts('schema', 0)[1][:2] == ['Of colour 1 0 is seen 1.', 'Of colour 1 x1 is seen 1.']
    how = {'delimiter': '\nAnswer: ', 'question': 'Q: ', 'joint': '\n\n'}
    assert texts('language_modeling', 1, count=2, **how) == [
        ['Q: The colour 1 is\nAnswer: bright 1\n\nQ: The colour 0 is\nAnswer: bright 0'],
        ['Q: The colour 0 is\nAnswer: bright 0\n\nQ: The colour 1 is\nAnswer: bright 1'],
    ]
    assert texts('schema', 1, count=2)[1][3] == 'Of colour 0 0 is seen 0.\nOf colour 1 xxx3 is seen 1.'
    assert texts('multiple_choice', 1, count=2)[0][2] == 'Question 1: colour 1 x1\nQuestion 0: colour 0 xx2'
    told = texts('generation', 1, count=2, reasoning=' #### ')
    assert told[0] == ['Which colour 1? Of 1 it is #### red 1\nWhich colour 0? Of 0 it is #### red 0']
    assert texts('generation', 1, count=2)[0] == ['Which colour 1? red 1\nWhich colour 0? red 0']


def test_white_space_is_not_doubled_unless_it_is_the_question() -> None:
    some = [
        Example(('Answer: ',), (' yes', 'no ')),
        Example(('Trim " a":',), (' a', 'a')),
        Example(('a:\n',), (' ', 'b')),
    ]
    first, second, third = prompts(task(), some, 0, 0, BYTES, 100)
    assert [BYTES.decode(request.tokens) for request in first.requests] == [b'Answer: yes', b'Answer: no']
    assert [request.text for request in first.requests] == ['yes', 'no']
    assert [request.text for request in second.requests] == [' a', 'a']
    assert [BYTES.decode(request.tokens) for request in third.requests] == [b'a:  ', b'a: b']
    (kept,) = prompts(task(delimiter='='), some[:1], 0, 0, BYTES, 100)
    assert BYTES.decode(kept.requests[0].tokens) == b'Answer: = yes'


@pytest.mark.parametrize('kind', KINDS)
def test_the_span_is_the_continuation(kind: str) -> None:
    some = [example(kind, i) for i in range(12)]
    for prompt, each in zip(prompts(task(kind), some, 3, 0, BPE, 1000), some, strict=True):
        assert len(prompt.requests) == len(each.candidates)
        for request, (_, continuation) in zip(prompt.requests, each.candidates, strict=True):
            assert BPE.decode(request.tokens[request.start :]).decode() == f' {continuation}'
            assert request.text == continuation


def test_shots_are_drawn_without_the_example_and_more_extend_fewer() -> None:
    def shown(shots: int, seed: int = 0, name: str = 'colours', count: int = 12) -> list[list[str]]:
        some = [example('language_modeling', i) for i in range(count)]
        made = prompts(task('language_modeling', name=name), some, shots, seed, BYTES, 10_000)
        return [BYTES.decode(prompt.requests[0].tokens).decode().split('\n')[:-1] for prompt in made]

    five, eleven = shown(5), shown(11)
    for i, (few, many) in enumerate(zip(five, eleven, strict=True)):
        assert many[:5] == few
        assert len(set(many)) == 11
        assert f'The colour {i} is bright {i}' not in many
    assert five == shown(5)
    assert five != shown(5, seed=1)
    assert five != shown(5, name='others')
    assert len({tuple(few) for few in five}) == 12
    with pytest.raises(ValueError, match='example 0 of task colours: there are 11 other examples, not 12; show fewer'):
        shown(12)


def test_an_example_with_the_same_question_is_not_shown() -> None:
    some = [example('multiple_choice', 0), example('multiple_choice', 1)]
    twin = some[0]._replace(continuations=some[0].continuations[::-1], gold=3, contexts=('Question  0: ',))
    for seed in range(9):
        for made in prompts(task(), [*some, twin], 1, seed, BYTES, 1000)[::2]:
            assert BYTES.decode(made.requests[0].tokens).startswith(b'Question 1:')
    bare = [Example(('',), (text,)) for text in ('a', 'b', 'a')]
    for made in prompts(task('language_modeling'), bare, 1, 0, BYTES, 1000)[::2]:
        assert BYTES.decode(made.requests[0].tokens) == b' b\n a'


def test_shots_of_the_category_and_of_a_pool() -> None:
    some = [example('multiple_choice', i) for i in range(12)]
    pool = [example('multiple_choice', 100 + i) for i in range(6)]
    how = task(by_category=True, shot_file='dev.jsonl')
    for i, made in enumerate(prompts(how, some, 2, 0, BYTES, 1000, pool)):
        shots = BYTES.decode(made.requests[0].tokens).decode().split('\n')[:-1]
        assert {int(shot.split(':')[0].split()[-1]) for shot in shots} == {100 + (i - 1) % 3, 103 + (i - 1) % 3}
    with pytest.raises(ValueError, match="there are 2 other examples of category 'c0', not 3"):
        prompts(how, some, 3, 0, BYTES, 1000, pool)
    with pytest.raises(ValueError, match=r'come from dev\.jsonl; read it'):
        prompts(how, some, 3, 0, BYTES, 1000)
    assert len(prompts(how, some, 0, 0, BYTES, 1000)) == 12


@pytest.mark.parametrize('tokenizer', [BYTES, BPE, WILD], ids=['bytes', 'bpe', 'wild'])
def test_overflow_is_counted(tokenizer: Tokenizer) -> None:
    some = [example('multiple_choice', i) for i in range(12)]
    full = prompts(task(), some, 4, 0, tokenizer, 10_000)
    assert {(made.dropped, made.cut) for made in full} == {(0, 0)}
    longest = max(len(request.tokens) for request in full[0].requests)
    for room in range(longest, 0, -1):
        try:
            (made, *_) = prompts(task(), some, 4, 0, tokenizer, room)
        except ValueError as error:
            assert 'has no room in' in str(error)  # noqa: PT017
            break
        assert made.dropped == 4 or not made.cut
        for request, whole in zip(made.requests, full[0].requests, strict=True):
            assert len(request.tokens) <= room
            assert request.start >= 1
            assert whole.tokens.tolist()[-len(request.tokens) :] == request.tokens.tolist()
            assert request.tokens[request.start :].tolist() == whole.tokens[whole.start :].tolist()
        lines = tokenizer.decode(made.requests[0].tokens).decode().split('\n')
        assert len(lines) == 5 - made.dropped
        if not made.cut:
            assert lines[-1].startswith('Question 0:')
    assert made.cut > 0
    assert room == max(len(request.tokens) - request.start for each in full for request in each.requests)


def test_generation_leaves_room_and_ends_in_no_white_space() -> None:
    some = [example('generation', i) for i in range(12)]
    how = task('generation', delimiter='\nA: think. ', reasoning=' #### ')
    full = [opening.tokens for opening in openings(how, some, 2, 0, BPE, 500, 100)]
    text = BPE.decode(full[3]).decode()
    assert text.endswith('\nWhich colour 3?\nA: think.')
    assert text.count(' #### ') == 2
    assert BPE.encode(text).tolist() == full[3].tolist()
    few = openings(how, some, 2, 0, BPE, len(full[3]) + 99, 100)[3]
    assert (few.dropped, few.cut) == (1, 0)
    assert BPE.decode(few.tokens).decode() == text.split('\n', 2)[2]
    tiny = openings(how, some, 2, 0, BPE, 105, 100)[3]
    assert (tiny.dropped, len(tiny.tokens)) == (2, 5)
    assert tiny.cut > 0
    with pytest.raises(ValueError, match='new_tokens=100 leave nothing of room=100'):
        openings(how, some, 2, 0, BPE, 100, 100)


@pytest.mark.skipif(not REAL.exists(), reason='no task files here')
def test_the_published_tasks_fit_and_are_what_the_tokenizer_says() -> None:
    for each in tasks_of(['core', 'extra'], REAL, lambda line: None):
        every = examples(each, REAL)
        pool = shot_pool(each, REAL) or every
        for made in prompts(each, every[:3], each.shots, 0, BPE, 100_000, pool):
            assert (made.dropped, made.cut) == (0, 0)
            for request in made.requests:
                text = BPE.decode(request.tokens).decode()
                assert request.tokens.tolist() == BPE.encode(text).tolist()
                assert BPE.decode(request.tokens[request.start :]).decode().strip() == request.text.strip()
            assert text.count(each.question.strip()) > each.shots if each.question else True
        for made in prompts(each, every[:2], each.shots, 0, BPE, 700, pool):
            assert made.cut == 0 or made.dropped == each.shots
            assert all(len(request.tokens) <= 700 for request in made.requests)


def test_some_examples_have_the_prompts_that_they_have_among_all() -> None:
    how, some = task(), [example('multiple_choice', i) for i in range(9)]
    every = prompts(how, some, 2, 0, BYTES, 500)
    for one, index in zip(prompts(how, some, 2, 0, BYTES, 500, only=[7, 2]), (7, 2), strict=True):
        assert [r.tokens.tolist() for r in one.requests] == [r.tokens.tolist() for r in every[index].requests]
