"""The verb `contamination`: what stands in packed text is found wherever rows cut it, by hand-counted tasks."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packs import documents_in, sentences, small_pack

from smelt_jax.data.manifest import load_tokenizer
from smelt_jax.data.packed import documents

ROOT = Path(__file__).parents[2]
KNOWN = 'Who wrote the long book about a whale that a captain hunts over all seas'  # 15 words
OTHER = 'What has never been written down by anybody anywhere at any time in this world'
TABLE = """task,file,icl_type,num_fewshot,random_baseline
quiz,quiz.jsonl,multiple_choice,0,50
gaps,gaps.jsonl,language_modeling,0,0
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pack/ of rows of 32 bytes, that cut every text, and tasks/: three examples of two choices, two of gaps."""
    folder = tmp_path_factory.mktemp('contamination')
    said = [f'He asked: {KNOWN.upper()}?\n', f'Said: {KNOWN} Melville did.', *sentences(60)]
    small_pack(folder / 'pack', said, heldout_fraction=0.3)
    tasks = folder / 'tasks'
    tasks.mkdir()
    (tasks / 'two.csv').write_text(TABLE)
    lines = [{'query': query, 'choices': ['Melville', 'Conrad'], 'gold': 0} for query in (OTHER, KNOWN, 'Too short')]
    (tasks / 'quiz.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    gaps = [{'context': OTHER, 'continuation': 'so'}, {'context': 'Is', 'continuation': 'short'}]
    (tasks / 'gaps.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in gaps))
    return folder


def split_of(folder: Path, text: str) -> str:
    (split,) = [
        split for split in ('train', 'heldout') if text.encode() in b'\n'.join(documents(folder / 'pack', split))
    ]
    return split


@pytest.mark.parametrize('split', ['train', 'heldout'])
@pytest.mark.parametrize('tokenizer', ['bytes', 'bpe:300'])
def test_documents_are_whole(tmp_path: Path, split: str, tokenizer: str) -> None:
    small_pack(tmp_path / 'pack', [*sentences(40), 'x' * 31, 'x' * 32, 'x' * 33, 'y' * 400], tokenizer=tokenizer)
    decode = load_tokenizer(tmp_path / 'pack').decode
    heard: list[tuple[int, int]] = []
    found = list(documents(tmp_path / 'pack', split, lambda done, of: heard.append((done, of))))
    assert found == [decode(ids) for ids in documents_in(tmp_path / 'pack', split)]
    assert heard == [(row + 1, len(heard)) for row in range(len(heard))]


def test_what_stands_in_the_rows_is_found(smelt: Callable, folder: Path, tmp_path: Path) -> None:
    split = split_of(folder, KNOWN)
    args = (f'--pack={folder}/pack', f'--task_dir={folder}/tasks', '--tasks=two', f'--split={split}', '--show=2')
    done = smelt('contamination', *args, f'--json={tmp_path}/a.json', f'--markdown={tmp_path}/a.md')
    found = json.loads((tmp_path / 'a.json').read_text())
    quiz = {'examples': 3, 'short': 1, 'hit': 1, 'runs': 8, 'found': 4, 'share': 1 / 3, 'runs_share': 0.5}
    run = ' '.join(KNOWN.lower().split()[:13])
    assert found['tasks']['quiz'] == {**quiz, 'found_in': [{'example': 1, 'run': run}]}
    assert found['tasks']['gaps']['hit'] == 0
    assert found['documents'] == len(list(documents(folder / 'pack', split)))
    assert f'quiz, example 1: {KNOWN.lower()} melville\n    found: {run}' in done.stdout
    assert 'rows of' in done.stderr
    assert '| quiz | 3 | 1 | 1 | 33.33% | 8 | 4 | 50.00% |' in (tmp_path / 'a.md').read_text()
    other = {'train': 'heldout', 'heldout': 'train'}[split]
    done = smelt('contamination', *args[:-2], f'--split={other}', '--words=17', '--tasks=quiz,copy')
    assert 'copy' in done.stdout


def test_it_imports_no_jax(folder: Path) -> None:
    code = (
        'import sys; from smelt_jax.cli.main import main; code = main(sys.argv[1:]);'
        'assert "jax" not in sys.modules and "grain" not in sys.modules; sys.exit(code)'
    )
    args = (f'--pack={folder}/pack', f'--task_dir={folder}/tasks', '--tasks=two,made')
    done = subprocess.run(
        [sys.executable, '-c', code, 'contamination', *args], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ('args', 'code', 'complaint'),
    [
        (('--tasks=two', '--task_dir=tasks'), 2, '--pack is required'),
        (('--pack=pack', '--task_dir=tasks'), 1, '--tasks is required'),
        (('--pack=pack', '--tasks=two', '--task_dir=gone'), 1, '--task_dir=gone is no folder'),
        (('--pack=pack', '--tasks=mmlu', '--task_dir=tasks'), 1, "there is no task 'mmlu'; there are the groups two"),
        (('--pack=gone', '--tasks=two', '--task_dir=tasks'), 1, 'gone is no pack: it has no manifest.json'),
        (('--pack=pack', '--tasks=two', '--task_dir=tasks', '--words=0'), 2, '--words=0'),
        (('--pack=pack', '--tasks=two', '--task_dir=tasks', '--split=test'), 2, 'train|heldout'),
        (('--pack=pack', '--tasks=two', '--task_dir=tasks', '--json=gone/a.json'), 1, '--json=gone/a.json: gone is no'),
        (('--pack=pack', '--tasks=bad', '--task_dir=bad'), 1, 'bad/bad.jsonl, line 1: is no JSON'),
    ],
)
def test_a_wrong_command_is_named(
    smelt: Callable, folder: Path, args: tuple[str, ...], code: int, complaint: str
) -> None:
    bad = folder / 'bad'
    bad.mkdir(exist_ok=True)
    (bad / 'some.csv').write_text('task,file,icl_type\nbad,bad.jsonl,language_modeling\n')
    (bad / 'bad.jsonl').write_text('{\n')
    done = smelt('contamination', *args, code=code, cwd=folder)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
