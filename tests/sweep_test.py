"""An experiment from text to table, killed at any moment or not; and as lines for a launcher."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from etils import epath
from packs import sentences, write_jsonl
from runs_helper import ROOT, RUN, SOURCES, edit, times_of, without_clock, write_experiment

from smelt_jax.cli.flags import load_experiment, override
from smelt_jax.config import RunConfig, resolve
from smelt_jax.evaluate.heldout import evaluate
from smelt_jax.runs import RunDir
from smelt_jax.sweep import launcher_lines, with_pack

BRANCH_STEPS = (3, 6, 9)


@pytest.fixture(scope='module')
def arms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunConfig]:
    """A layer, and a layer that is run twice."""
    folder = tmp_path_factory.mktemp('text')
    corpora = tuple(
        write_jsonl(folder / f'{source}.jsonl', sentences(10, seed), domain, source)
        for seed, (source, domain) in enumerate(SOURCES)
    )
    flat = edit(
        RUN,
        name='flat',
        pack__corpora=corpora,
        pack__row_tokens=32,
        pack__heldout_fraction=0.2,
        pack__workers=1,
        train__steps=9,
        train__save_every=4,
        train__branch_steps=BRANCH_STEPS,
        train__branch_tokens=3 * 64,
    )
    return {'flat': flat, 'loop': edit(flat, name='loop', model__loop__length=1, model__loop__visits=2)}


@pytest.fixture(scope='module')
def experiment(arms: dict[str, RunConfig], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_experiment(tmp_path_factory.mktemp('experiment') / 'pair.py', **arms)


@pytest.fixture(scope='module')
def undisturbed(
    experiment: str, tmp_path_factory: pytest.TempPathFactory, smelt: Callable, quick_env: dict
) -> tuple[Path, str]:
    """A sweep that nobody killed: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp('undisturbed')
    done = smelt('sweep', f'--experiment={experiment}', f'--workdir={folder}', **quick_env)
    return folder, done.stdout


def run_dirs(folder: Path) -> dict[str, RunDir]:
    names = [f'{arm}/{part}' for arm in ('flat', 'loop') for part in ('trunk', *(f'branch-{s}' for s in BRANCH_STEPS))]
    return {name: RunDir(folder / name) for name in names}


def comparison_of(folder: Path) -> dict:
    """All of it but the speed."""
    return json.loads((folder / 'comparison-flat-loop.json').read_text()) | {'speed': None}


def test_a_sweep_leaves_tables_a_picture_and_every_run(undisturbed: tuple[Path, str]) -> None:
    folder, printed = undisturbed
    assert (folder / 'loss_flops.png').read_bytes().startswith(b'\x89PNG')
    table = (folder / 'comparison-flat-loop.txt').read_text()
    for title in (
        'Held-out loss at equal tokens',
        'by domain',
        'by length',
        'The three budgets',
        'Speed of the trunks',
    ):
        assert title in table
        assert title in printed
    assert 'What it can show: nothing.' in table
    assert 'byte trigram' in table
    for name, run_dir in run_dirs(folder).items():
        assert len(run_dir.heldout()) == (3 if 'trunk' in name else 1), name
        assert run_dir.config().data.pack == str(folder / 'pack')

    comparison = comparison_of(folder)
    places = [(pair['kind'], pair['trunk_step'], pair['step']) for pair in comparison['endpoints']]
    assert places == [('trunk', s, s) for s in BRANCH_STEPS] + [('branch', s, s + 3) for s in BRANCH_STEPS]
    for pair in comparison['endpoints']:
        records = [
            run_dirs(folder)[
                f'{arm}/trunk' if pair['kind'] == 'trunk' else f'{arm}/branch-{pair["trunk_step"]}'
            ].heldout()
            for arm in ('flat', 'loop')
        ]
        losses = [next(r['loss'] for r in found if r['step'] == pair['step']) for found in records]
        assert pair['loss'] == losses
        assert pair['difference'] == losses[1] - losses[0]


def kill_once_there(file: Path, args: list[str], env: dict[str, str], seconds: float) -> None:
    """Starts `smelt ARGS`, waits for the file and then the seconds, and kills it."""
    environment = os.environ | {'XLA_FLAGS': '', 'PYTHONPATH': str(ROOT)} | env
    with subprocess.Popen(
        [sys.executable, '-m', 'smelt_jax', *args], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        while not file.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode == -9, f'it was over before {file} was there: {error.decode()}'


def test_a_sweep_that_is_killed_ends_with_the_same_comparison(
    experiment: str, undisturbed: tuple[Path, str], tmp_path: Path, smelt: Callable, quick_env: dict
) -> None:
    """In the first arm's branches or in the second arm's trunk, at a moment that differs each time."""
    args = ['sweep', f'--experiment={experiment}', f'--workdir={tmp_path}']
    place = random.choice(['flat/branch-3/metrics.jsonl', 'flat/branch-6/config.json', 'loop/trunk/metrics.jsonl'])
    kill_once_there(tmp_path / place, args, quick_env, random.uniform(0, 0.3))
    smelt(*args, **quick_env)
    assert comparison_of(tmp_path) == comparison_of(undisturbed[0])  # to the last bit
    for name, run_dir in run_dirs(undisturbed[0]).items():
        assert without_clock(run_dirs(tmp_path)[name].metrics()) == without_clock(run_dir.metrics()), name


def test_what_is_done_is_not_done_again(experiment: str, undisturbed: tuple[Path, str], smelt, quick_env: dict) -> None:
    """An evaluation at other visits is none of the sweep's: it evaluates again what it needs."""
    folder, _ = undisturbed
    runs = run_dirs(folder)
    before, expected = {name: times_of(run) for name, run in runs.items()}, comparison_of(folder)
    os.utime(folder / 'comparison-flat-loop.json', (0, 0))
    record = evaluate(str(runs['loop/trunk'].path), 6, visits=3)
    kept = [r for r in runs['loop/trunk'].records() if r['step'] != 6 or r['visits'] == 3]
    runs['loop/trunk'].records_file.write_text(''.join(json.dumps(r) + '\n' for r in kept))
    smelt('sweep', f'--experiment={experiment}', f'--workdir={folder}', **quick_env)
    assert (folder / 'comparison-flat-loop.json').stat().st_mtime > 0
    assert comparison_of(folder) == expected
    assert record in runs['loop/trunk'].records()
    after = {name: times_of(run) for name, run in runs.items()}
    changed = {name for name in runs if after[name] != before[name]}
    assert changed == {'loop/trunk'}


PARSE = """
import sys
import smelt_jax.cli.main as main
from smelt_jax.cli.flags import FLAGS, run_config

def show(verb, *_):
    config = run_config() if 'config' in FLAGS else None
    print(verb, config and (config.name, config.data.pack, config.optim.peak_lr, config.pack.seed))
    return 0

main._run = show
sys.exit(main.main())
"""


def test_the_lines_of_a_sweep_are_commands(experiment: str, arms: dict[str, RunConfig], tmp_path: Path) -> None:
    """They parse, folders with spaces among them, and carry what --set has set."""
    settings = ['optim.peak_lr=0.5', 'pack.seed=3']
    workdir = f'{tmp_path}/my runs'
    runs = {name: edit(run, optim__peak_lr=0.5, pack__seed=3) for name, run in arms.items()}
    packing, lines = launcher_lines(experiment, runs, workdir, settings)
    assert len(lines) == 2
    verbs = ['train', *['evaluate', 'branch', 'evaluate'] * 3]
    for line in lines:
        assert [shlex.split(command)[:2] for command in line.split(' && ')] == [['smelt', verb] for verb in verbs]

    expected = ('flat', f'{workdir}/pack', 0.5, 3)
    shown = {'pack': ('flat', '', 0.5, 3), 'train': expected, 'evaluate': None, 'branch': None}
    for command in (packing, *lines[0].split(' && ')[:3]):
        argv = shlex.split(command)[1:]
        done = subprocess.run(
            [sys.executable, '-c', PARSE, *argv], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert (done.stdout, done.stderr) == (f'{argv[0]} {shown[argv[0]]}\n', ''), command
    assert f'--out={workdir}/pack' in shlex.split(packing)


def test_the_command_prints_lines_and_nothing_else_to_stdout(experiment: str, smelt: Callable, tmp_path: Path) -> None:
    args = ('sweep', f'--experiment={experiment}', f'--workdir={tmp_path}/runs', '--lines', '--set=train.steps=20')
    done = smelt(*args, '--arms=loop')
    (line,) = done.stdout.splitlines()
    assert line.startswith(f'smelt train --config={experiment}:loop --config.train.steps=20 ')
    assert done.stderr.startswith('smelt pack ')
    assert not os.listdir(tmp_path)
    done = smelt(*args, '--arms=loop', '--coordinator=auto')
    assert [command.endswith(' --coordinator=auto') for command in done.stdout.strip().split(' && ')] == [True] * 10
    done = smelt(*args[:-2], '--coordinator=auto', code=1)
    assert 'with --lines it prints commands for many' in done.stderr
    done = smelt(*args, '--set=train.stpes=3', code=1)
    assert done.stderr.startswith('smelt sweep: error: unknown key train.stpes; known here: steps')


@pytest.mark.parametrize(
    ('entry', 'complaint'),
    [
        ('train.stpes=3', r'unknown key train\.stpes; known here: steps'),
        ('trian.steps=3', r'trian\.steps=3: .*trian'),
        ('train.steps=abc', r'train\.steps=abc: .*abc.*int'),
        ('train.steps=0.5', r'train\.steps=0\.5: .*0\.5.*int'),
        ('train.steps=0', r'train\.steps=0: must be at least 1'),
        ('train=5', r'train=5: '),
        ('train.branch_steps=(1,"x")', r"train\.branch_steps\[1\]='x': expected int"),
        ('train.steps', r"'train\.steps': expected KEY=VALUE"),
        ('model.experts.per_token=99', r'count=4 is less than per_token=99'),
    ],
)
def test_a_setting_that_does_not_fit_is_named(experiment: str, entry: str, complaint: str) -> None:
    settings = load_experiment(experiment)

    def set_and_resolve() -> None:
        override(settings, entry)
        resolve(settings)

    with pytest.raises(ValueError, match=complaint):
        set_and_resolve()


@pytest.mark.parametrize(
    ('changes', 'named'),
    [
        ({'data__seed': 1}, r'data\.seed: 0 -> 1'),
        ({'data__batch_rows': 4}, r'data\.batch_rows: 2 -> 4'),
        ({'pack__row_tokens': 64}, r'pack\.row_tokens: 32 -> 64'),
        ({'train__branch_steps': (3,)}, r'train\.branch_steps: \(3, 6, 9\) -> \(3,\)'),
        ({'heldout__max_rows': 5}, r'heldout\.max_rows: 0 -> 5'),
    ],
)
def test_arms_that_would_not_read_the_same_text_are_refused(arms: dict, changes: dict, named: str) -> None:
    with pytest.raises(ValueError, match=rf'flat and loop would not be compared on the same text: {named}'):
        with_pack(arms | {'loop': edit(arms['loop'], **changes)}, epath.Path('runs'))
    same = with_pack(arms, epath.Path('runs'))
    assert {run.data.pack for run in same.values()} == {'runs/pack'}
