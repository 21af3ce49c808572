"""`smelt fit`: from a file to a table and a fit file, and what it says of what is wrong."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from lawcheck.synthetic import smelt_columns, truths

from smelt_jax.law import fitted
from smelt_jax.law.laws import law_named


@pytest.fixture(scope='module')
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms and their S = 0, made by the SMELT law, with columns that have other names."""
    path = tmp_path_factory.mktemp('fit') / 'table.csv'
    law, at, rng = law_named('smelt'), smelt_columns(), np.random.default_rng(0)
    at = {name: np.concatenate([values, values[:6]]) for name, values in at.items()}
    at['S'][72:] = 0
    with open(path, 'w') as out:
        lines = csv.writer(out)
        lines.writerow(['arm', 'flops', 'S', 'tokens', 'final_loss'])
        for i, arm in enumerate(('baseline', 'smelt')):
            loss = law.loss(truths()['smelt'], at) - 0.01 * i + 0.003 * rng.standard_normal(78)
            lines.writerows([arm, *row] for row in zip(at['F'], at['S'], at['D'], loss, strict=True))
    return path


def test_it_fits_prints_and_writes(smelt, file: Path, tmp_path: Path) -> None:
    (tmp_path / 'doc.md').write_text('before\n<!-- fits -->\n<!-- end of fits -->\nafter\n')
    done = smelt(
        'fit', f'--records={file}', '--law=smelt', '--columns=loss=final_loss,flops=F,D=tokens', '--by=arm', '--exclude=S==0',
        '--bootstrap=cells', '--replicates=40', '--starts=64', f'--out={tmp_path}/fit.json',
        f'--markdown={tmp_path}/doc.md#fits',
    )  # fmt: skip
    fits = fitted.load(tmp_path / 'fit.json')
    assert [(fit.group, fit.points, len(fit.replicates)) for fit in fits] == [('baseline', 72, 40), ('smelt', 72, 40)]
    assert fits[0].details['cells'] == fits[1].details['cells']
    for fit in fits:
        assert f'{fit.coefficients["a"]:.5g}' in done.stdout
        assert fit.coefficients['a'] == pytest.approx(0.3892, rel=0.1)
    assert 'E + A (1 - S)^b / F^a + K / D^c' in done.stdout
    text = (tmp_path / 'doc.md').read_text()
    assert '| RMSE |' in text
    assert text.startswith('before')
    assert text.endswith('after\n')
    json.loads((tmp_path / 'fit.json').read_text(), parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))


def test_a_seed_has_one_answer_whatever_the_order_of_rows(smelt, file: Path, tmp_path: Path) -> None:
    head, *rows = file.read_text().splitlines()
    (tmp_path / 'turned.csv').write_text('\n'.join([head, *rows[::-1]]) + '\n')
    for name, records in (('a', file), ('b', tmp_path / 'turned.csv')):
        smelt(
            'fit', f'--records={records}', '--law=smelt', '--columns=loss=final_loss,F=flops,D=tokens', '--by=arm',
            '--where=S>0', '--bootstrap=points', '--replicates=20', '--starts=32', f'--out={tmp_path}/{name}.json',
        )  # fmt: skip
    assert (tmp_path / 'a.json').read_text() == (tmp_path / 'b.json').read_text()


@pytest.mark.parametrize(
    ('given', 'complaint'),
    [
        (['--law=smelt'], '--records is required'),
        (['--law=smel', '--records=FILE'], "there is no law 'smel'; there are chinchilla"),
        (['--law=smelt', '--records=gone.csv'], 'gone.csv is not there'),
        (['--law=smelt', '--records=FILE'], 'no column loss'),
        (['--law=smelt', '--records=FILE', '--columns=final_loss=loss,flops=F,tokens=D', '--delta=0'], 'delta=0'),
        (
            ['--law=smelt', '--records=FILE', '--columns=final_loss=loss,flops=F,tokens=D', '--out=no/such/fit.json'],
            '--out=no/such/fit.json: no/such is',
        ),
        (['--law=smelt', '--records=FILE', '--out=FILE'], '--records and --out are both'),
        (
            [
                '--law=smelt',
                '--records=FILE',
                '--columns=final_loss=loss,F=flops,tokens=D',
                '--bootstrap=cells',
                '--where=arm==smelt',
                '--cells=arm',
                '--out=never.json',
            ],
            'the rows of smelt are of one cell',
        ),
    ],
)
def test_what_is_wrong_is_one_line(smelt, file: Path, tmp_path: Path, given: list[str], complaint: str) -> None:
    words = [word.replace('FILE', str(file)) for word in given]
    done = smelt(
        'fit', *words, '--starts=4', '--by=arm' if '--columns' in str(words) else '--by=', code=None, cwd=tmp_path
    )
    assert done.returncode in (1, 2)
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
