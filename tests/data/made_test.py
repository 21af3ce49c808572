"""Made-up text: every answer right and the only one, held-out pairs never in training text, everything repeatable."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from packs import documents_in, small_config

from smelt_jax.data import made, tokenizer
from smelt_jax.data.packing import pack
from smelt_jax.data.rows import PackedRows
from smelt_jax.tasks.reading import MADE_EXAMPLES

CLOSERS = dict(zip('([{<', ')]}>', strict=True))


def closing(context: str) -> str:
    """The answer to a Dyck question, by taking away matched neighbours until only openers are left."""
    assert context.startswith('Close: ')
    assert context.endswith(' =')
    rest = context[7:-2].replace(' ', '')
    while (shorter := rest.replace('()', '').replace('[]', '').replace('{}', '').replace('<>', '')) != rest:
        rest = shorter
    return ' '.join(CLOSERS[bracket] for bracket in reversed(rest))


def copied(context: str) -> str:
    before, after = context.removesuffix(' =').split(': ')
    assert before == 'Copy'
    return after


def computed(context: str) -> str:
    return str(eval(context.removesuffix('=')))


def recalled(context: str) -> str:
    """What follows the letter asked for, if it is there once."""
    letters, asked = context.removeprefix('Next: ').split(' = ')
    (place,) = [i for i, letter in enumerate(letters.split(' ')) if letter == asked]
    return letters.split(' ')[place + 1]


ANSWERS = {'dyck': closing, 'copy': copied, 'arithmetic': computed, 'induction': recalled}


@pytest.mark.parametrize('heldout', [False, True])
@pytest.mark.parametrize('name', made.MADE)
def test_answers_are_right(name: str, heldout: bool) -> None:
    pairs = made.pairs(name, 400, seed=3, heldout=heldout)
    assert len(set(pairs)) == 400
    assert [(context, ANSWERS[name](context)) for context, _ in pairs] == pairs
    assert all(continuation for _, continuation in pairs)


def test_sizes_are_those_asked_for() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        context, continuation = made.dyck(random, left=2, closed=1)
        assert continuation.count(' ') < 2
        assert context.count(' ') <= 2 + 3
        assert set(context[7:-2]) <= set('()[]{}<> ')
        assert made.copy(random, 3, 3)[1].count(' ') == 2
        assert made.induction(random, 5, 5)[0].count(' ') == 7


def test_all_sorts_are_made() -> None:
    """Every bracket, every number of closers, every place to ask for, both signs."""
    answers = [answer for _, answer in made.pairs('dyck', 400, 0, heldout=False)]
    assert {answer.count(' ') + 1 for answer in answers} == {1, 2, 3, 4}
    assert {answer[0] for answer in answers} == set(CLOSERS.values())
    lines = [context.split(' ')[1:] for context, _ in made.pairs('induction', 400, 0, heldout=False)]
    assert {line.index(line[-1]) for line in lines if len(line) == 12} == set(range(9))
    assert {context.split()[1] for context, _ in made.pairs('arithmetic', 40, 0, heldout=False)} == {'+', '-'}


@pytest.mark.parametrize('name', made.MADE)
def test_held_out_pairs_are_in_no_training_text(name: str) -> None:
    """Of the small spaces nearly every training pair occurs here; a longer line would show if it began like a held-out one."""
    heldout = {' '.join(pair) for pair in made.pairs(name, 256, seed=0, heldout=True)}
    documents = [made.document(name, index) for index in range(1500)]
    assert all(made.is_heldout(*pair) for pair in made.pairs(name, 256, seed=1, heldout=True))
    assert not heldout & {line for document in documents for line in document.split('\n')}
    text = '\n'.join(['', *documents, ''])
    assert [line for line in heldout if f'\n{line}\n' in text] == []


def test_a_pair_is_held_out_by_its_text() -> None:
    """Whatever the seed: of two seeds' pairs that are the same, both are held out or neither is. One in eight is."""
    trained = {pair for seed in range(8) for pair in made.pairs('arithmetic', 400, seed, heldout=False)}
    heldout = {pair for seed in range(8) for pair in made.pairs('arithmetic', 400, seed, heldout=True)}
    assert not trained & heldout
    random = np.random.default_rng(5)
    share = np.mean([made.is_heldout(*made.copy(random, 6, 6)) for _ in range(4000)])
    assert abs(share - 1 / 8) < 0.02


@pytest.mark.parametrize('name', made.MADE)
def test_the_same_arguments_give_the_same_pairs(name: str) -> None:
    assert made.pairs(name, 20, 1, heldout=True) == made.pairs(name, 40, 1, heldout=True)[:20]
    assert made.pairs(name, 20, 1, heldout=True) != made.pairs(name, 20, 2, heldout=True)
    code = f'from smelt_jax.data import made; print(made.document({name!r}, 7))'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == made.document(name, 7) + '\n'


@pytest.mark.parametrize('name', made.MADE)
def test_chance_is_what_guessing_scores(name: str) -> None:
    def guess(context: str, continuation: str) -> float:
        if name == 'arithmetic':
            return 1 / {1: 10, 2: 90, 3: 99}[len(continuation)]
        options = {'dyck': 4, 'copy': 26, 'induction': len(set(context[6:])) - 3}[name]
        return float(options) ** -len(continuation.split())

    mean = np.mean([guess(*pair) for pair in made.pairs(name, MADE_EXAMPLES, seed=0, heldout=True)])
    assert abs(mean - made.CHANCE[name]) < 0.005 * made.CHANCE[name]


def test_documents_hold_one_pair_or_many() -> None:
    lengths = [made.document('copy', index).count('\n') + 1 for index in range(192)]
    assert lengths == [24, 12, 8, 6, 4, 4, 3, 3, 2, 2, 2, 2, *[1] * 84] * 2
    assert made.document('copy', 0) != made.document('copy', 96)


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match='arithmetic has fewer than 9999 different pairs that are easily found'):
        made.pairs('arithmetic', 9999, 0, heldout=True)
    with pytest.raises(ValueError, match="'dick' is no made-up text; there are dyck, copy, arithmetic, induction"):
        made.pairs('dick', 1, 0, heldout=True)


def test_a_pack_of_made_up_text_holds_the_documents(tmp_path: Path) -> None:
    made_pack = pack(small_config('made:induction+dyck:60', row_tokens=128), tmp_path / 'p')
    sources = [(source.domain, source.name) for source in made_pack.train.sources]
    assert sources == [('Made', 'dyck'), ('Made', 'induction')]
    found = {bytes(d).decode() for split in ('train', 'heldout') for d in documents_in(tmp_path / 'p', split)}
    assert found == {made.document(name, i) for name in ('dyck', 'induction') for i in range(60)}
    assert PackedRows(tmp_path / 'p', 'train').manifest.vocab == tokenizer.ByteTokenizer.vocab
