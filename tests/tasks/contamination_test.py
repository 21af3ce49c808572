"""Contamination: what stands in the corpus is found wherever it stands, and nothing else; equals the naive count."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_files import example

from smelt_jax.tasks import contamination
from smelt_jax.tasks.contamination import Overlap, overlaps
from smelt_jax.tasks.example import Example

LONG = Example(('One two three  four five six\nseven eight nine ten eleven twelve',), ('thirteen fourteen',))
SHORT = Example(('too',), ('short',))


def test_a_run_is_found_whatever_its_case_and_white_space() -> None:
    text = 'Before. ONE two three four five six seven eight nine\tten eleven twelve thirteen . After.'
    for each in (text, text.encode()):
        (found,) = overlaps({'a': [LONG, SHORT]}, [each]).values()
        assert found == Overlap(examples=2, short=1, hit=1, runs=2, found=1)
        assert (found.share, found.runs_share) == (0.5, 0.5)
    (found,) = overlaps({'a': [LONG, SHORT]}, [text.replace(' .', '.')]).values()
    assert found.hit == 0  # `thirteen.` is another word


def test_no_run_reaches_over_the_end_of_a_document() -> None:
    words = f'{LONG.contexts[0]} {LONG.continuations[0]}'.split()
    assert overlaps({'a': [LONG]}, [' '.join(words)])['a'].found == 2
    assert overlaps({'a': [LONG]}, [' '.join(words[:7]), ' '.join(words[7:])])['a'].found == 0
    assert overlaps({'a': [LONG]}, [])['a'].share == 0.0
    assert overlaps({'a': []}, ['x'])['a'].share == 0.0


def test_bytes_that_are_no_text_are_passed_over() -> None:
    assert overlaps({'a': [SHORT]}, [b'\xff\xfe too short \x80'], n=2)['a'].hit == 1
    with pytest.raises(ValueError, match='n=0 is no number of words'):
        overlaps({'a': [SHORT]}, [], n=0)


WORDS = st.lists(st.sampled_from('abc'), max_size=12).map(' '.join)


@settings(max_examples=200, deadline=None)
@given(
    asked=st.lists(WORDS, min_size=1, max_size=4),
    texts=st.lists(WORDS, max_size=6),
    n=st.integers(1, 4),
    batch=st.sampled_from([1, 7, 1000]),
)
def test_equals_the_naive_count(asked: list[str], texts: list[str], n: int, batch: int) -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.split()
        return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}

    some = [Example((text,), ('x',)) for text in asked]
    corpus = set().union(*map(runs, texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contamination, '_BATCH', batch)
        found = overlaps({'a': some, 'b': some[:1]}, iter(texts), n)
    of = [runs(f'{text} x') for text in asked]
    for name, sets in (('a', of), ('b', of[:1])):
        every = set().union(*sets)
        assert found[name] == Overlap(
            len(sets),
            sum(not each for each in sets),
            sum(bool(each & corpus) for each in sets),
            len(every),
            len(every & corpus),
        )


def test_chains_of_thought_count() -> None:
    some = [example('generation', 3)]
    assert overlaps({'a': some}, ['well, of 3 it is red 3'], n=6)['a'].hit == 1
