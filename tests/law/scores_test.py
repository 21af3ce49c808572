"""`smelt law transfer` on the records of runs: losses and scores of a group of tasks, pair by pair."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from task_records import heldout, of_group, of_task, write


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Trunks and branches of two cells, evaluated on held-out text and the group, the looped ones at two numbers of visits:
    `smelt` scores 0.05 more than the baseline of its loss."""
    for cell in ('200m', '500m'):
        for arm, lift in (('baseline', 0.0), ('smelt', 0.05)):
            for step in (100, 200, 300, 400):
                loss = 2.4 - 0.2 * (cell == '500m') - 0.001 * step - 0.01 * (arm == 'smelt')
                facts = {'step': step, 'loss': loss, 'centered': 0.6 / (1 + np.exp((loss - 2) / 0.2)) + lift}
                name = f'{cell}-{arm}'
                records = [of_group(name, 2 if arm == 'smelt' else 1, **facts), of_group(name, 3, **facts)]
                records += [
                    heldout(name, 1, step=step),
                    of_task(name, 'copa', 2 if arm == 'smelt' else 1, 0, step=step),
                ]
                write(tmp_path / name / f'branch-{step}', records)
                write(tmp_path / name / f'trunk-{step}', [of_group(name, 1, kind='trunk', **facts)])
    return f'--records={tmp_path}/*/*/records.jsonl'


ASKED = ('law', 'transfer', '--loss=loss', '--score=centered', '--pair=cell,step', '--replicates=30')


def test_what_lies_beyond_the_loss_is_found(smelt: Callable, runs: str, tmp_path: Path) -> None:
    done = smelt(*ASKED, runs, '--where=task==core', '--group=cell', f'--json={tmp_path}/a.json')
    (arm,) = json.loads((tmp_path / 'a.json').read_text())['arms']
    assert arm['wins'] == {'won': 8, 'tied': 0, 'lost': 0}
    assert [(one['group'], one['points']) for one in arm['residuals']] == [('200m', 4), ('500m', 4), ('all', 8)]
    assert arm['residuals'][-1]['mean'] == pytest.approx(0.05, abs=0.005)
    assert 'are at other visits than in training, and left out' in done.stdout
    assert 'are of trunks, not annealed, and left out' in done.stdout
    done = smelt('figure', 'transfer', runs, '--where=task==core', '--score=centered', f'--out={tmp_path}/a.svg')
    assert done.stdout.endswith('centered, smelt beside baseline\n')


@pytest.mark.parametrize(
    ('args', 'complaint'),
    [
        ((), 'the records are of 3 tasks, core, heldout, copa; choose one: --where=task==core'),
        (('--where=task==boolq',), '--where=task==boolq leaves none of'),
        (('--where=task==copa',), 'loss is nothing, not a number'),
        (('--where=task==core', '--where=visits>=1'), "two rows of baseline are of pair '200m 100'"),
        (('--where=task==core', '--exclude=step==100,name==200m-smelt'), "cell step '200m 100' is not in both of"),
    ],
)
def test_records_that_make_no_pairs_are_named(
    smelt: Callable, runs: str, args: tuple[str, ...], complaint: str
) -> None:
    done = smelt(*ASKED, runs, *args, code=1)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
