"""Examples: every kind is read as it is written, and a bad row is named by file and line."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from etils import epath
from task_files import example, rows, task, write

from smelt_jax.tasks.reading import examples, fingerprint, shot_pool
from smelt_jax.tasks.task import KINDS

ROW = {kind: rows(kind, 1)[0] for kind in KINDS}


@pytest.mark.parametrize('kind', KINDS)
def test_a_file_is_its_examples(tmp_path: Path, kind: str) -> None:
    write(tmp_path / 'colours.jsonl', [*rows(kind), '  '])
    assert examples(task(kind), epath.Path(tmp_path)) == [example(kind, i) for i in range(12)]
    assert shot_pool(task(kind), epath.Path(tmp_path)) is None
    write(tmp_path / 'dev.jsonl', rows(kind, 5))
    assert len(shot_pool(task(kind, shot_file='dev.jsonl'), epath.Path(tmp_path)) or ()) == 5


def changed(kind: str, **values: Any) -> dict[str, Any]:
    """A row but for some fields; None takes one away."""
    return {name: value for name, value in ({**ROW[kind], **values}).items() if value is not None}


BAD = [
    ('multiple_choice', '{"query": "x", "choices": ["a", "b"], "gold": ' + 5000 * '1' + '}', 'is no JSON, Exceeds'),
    ('multiple_choice', '{"query": ', 'is no JSON'),
    ('multiple_choice', '[1]', 'is no JSON object'),
    ('multiple_choice', changed('multiple_choice', query=None), 'has no query'),
    ('multiple_choice', changed('multiple_choice', query=3), 'query is 3, not a text'),
    ('multiple_choice', changed('multiple_choice', choices=None), 'has no choices'),
    ('multiple_choice', changed('multiple_choice', choices='ab'), "choices is 'ab', not a list"),
    ('multiple_choice', changed('multiple_choice', choices=[]), 'choices has 0, not 2 or more'),
    ('multiple_choice', changed('multiple_choice', choices=['a']), 'choices has 1, not 2 or more'),
    ('multiple_choice', changed('multiple_choice', choices=['a', '']), r'choices\[1\] is empty'),
    ('multiple_choice', changed('multiple_choice', choices=['a', 7]), r'choices\[1\] is 7, not a text'),
    ('multiple_choice', changed('multiple_choice', gold=None), 'has no gold'),
    ('multiple_choice', changed('multiple_choice', gold=4), 'gold is 4, and there are candidates 0 to 3'),
    ('multiple_choice', changed('multiple_choice', gold=-1), 'gold is -1'),
    (
        'multiple_choice',
        '{"query": "x", "choices": ["a", "b", "a"], "gold": 2}',
        'choice 0 is the text of the gold one, 2',
    ),
    ('multiple_choice', changed('multiple_choice', gold=1.0), 'gold is 1.0, not a whole number'),
    ('multiple_choice', changed('multiple_choice', gold=True), 'gold is True, not a whole number'),
    ('multiple_choice', changed('multiple_choice', category=5), 'category is 5, not a text'),
    ('multiple_choice', '{"query": "\\ud800", "choices": ["a", "b"], "gold": 0}', 'query has half a surrogate pair'),
    ('schema', changed('schema', context_options=['a']), 'context_options has 1'),
    ('schema', changed('schema', continuation='  '), 'continuation is empty'),
    ('language_modeling', changed('language_modeling', continuation=''), 'continuation is empty'),
    ('language_modeling', changed('language_modeling', context=None), 'has no context'),
    ('generation', changed('generation', answer=''), 'answer is empty'),
    ('generation', changed('generation', answer=5), 'answer is 5, not a text'),
    ('generation', changed('generation', aliases='x'), "aliases is 'x', not a list"),
]


@pytest.mark.parametrize(('kind', 'row', 'complaint'), BAD, ids=[complaint for _, _, complaint in BAD])
def test_bad_rows_are_named(tmp_path: Path, kind: str, row: dict[str, Any] | str, complaint: str) -> None:
    write(tmp_path / 'colours.jsonl', [ROW[kind], '', row])
    with pytest.raises(ValueError, match=rf'colours\.jsonl, line 3: {complaint}.*; mend it') as error:
        examples(task(kind), epath.Path(tmp_path))
    assert '\n' not in str(error.value)


def test_bad_files_are_named(tmp_path: Path) -> None:
    file, folder = tmp_path / 'colours.jsonl', epath.Path(tmp_path)
    for content, complaint in ((b'', 'has no examples'), (b'\n \n', 'has no examples'), (b'\xff\xfe', 'is no text')):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=rf'colours\.jsonl {complaint}'):
            examples(task(), folder)
    (tmp_path / 'a.jsonl.gz').write_bytes(b'no gzip')
    with pytest.raises(ValueError, match=r'a\.jsonl\.gz is no text'):
        examples(task(file='a.jsonl'), folder)
    with pytest.raises(OSError, match=r'gone\.jsonl'):
        examples(task(file='gone.jsonl'), folder)


def test_a_fingerprint_is_of_all_that_decides_scores() -> None:
    some = [example('multiple_choice', i) for i in range(3)]
    plain = fingerprint(task(), some)
    assert len(plain) == 12
    assert int(plain, 16) >= 0
    assert fingerprint(task(file='elsewhere.jsonl', group='mine'), list(some)) == plain
    others = [
        fingerprint(task(**change), some)
        for change in (
            {'delimiter': ': '}, {'joint': ';'}, {'question': 'Q'}, {'normalise': 'raw'}, {'chance': 0.3}, {'name': 'x'},
            {'shots': 2}, {'by_category': True}, {'reasoning': '#'}, {'kind': 'schema'},
        )
    ]  # fmt: skip
    assert len({field.name for field in dataclasses.fields(task())}) == 13
    others += [
        fingerprint(task(), some[:2]),
        fingerprint(task(), some[::-1]),
        fingerprint(task(), [some[0]._replace(gold=3), *some[1:]]),
        fingerprint(task(), some, pool=some),
        fingerprint(task(), some, pool=some[:1]),
    ]
    assert len({plain, *others}) == 1 + len(others)
