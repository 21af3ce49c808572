"""`smelt budget`: the published numbers from the command line, JSON beside the tables, and exit codes that mean something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CELL = 'experiments/smelt.py:200m-s95'


def budget(*args):
    """Runs `smelt budget ARGS`."""
    code = 'import sys; from smelt_jax.cli.main import main; sys.exit(main())'
    return subprocess.run(
        [sys.executable, '-c', code, 'budget', *args], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_pair_shows_the_published_figures(tmp_path):
    file = tmp_path / 'pair.json'
    done = budget(f'--config={CELL}-smelt', f'--against={CELL}-baseline', f'--json={file}')
    assert done.returncode == 0, done.stderr
    for figure in ('1.369e+09', '1.33e+09', '3.889e+09', '3.872e+09', '6336', '6144', '1.0290', '1.0312'):
        assert figure in done.stdout
    data = json.loads(file.read_text())
    assert data['ratios']['flops'] == pytest.approx(1.029, abs=5e-4)
    assert data['config']['visits'] == 2
    assert data['against']['sparsity'] == pytest.approx(0.946, abs=5e-4)
    assert data['config']['by_part']['stored']['embedding'] == 65536 * 1056


@pytest.mark.parametrize(
    ('flags', 'line'),
    [
        ([], 'T̄ = 64.5: the most that rows of 128 tokens can have, not the 401 of the published figures'),
        (['--config.pack.row_tokens=801'], 'T̄ = 401, with which the published figures come out'),
        (['--mean_attended_keys=77'], 'T̄ = 77, as given'),
    ],
)
@pytest.mark.parametrize('what', ['count', 'against', 'match'])
def test_where_the_attended_keys_are_from_is_said(flags, line, what):
    more = {'count': [], 'against': [f'--against={CELL}-baseline'], 'match': ['--match', '--count=1']}[what]
    done = budget(f'--config={CELL}-baseline', '--config.pack.row_tokens=128', *flags, *more)
    assert done.returncode == 0, done.stderr
    assert f'\n{line}' in done.stdout


@pytest.mark.parametrize(
    ('bounds', 'outside'),
    [
        ('0.04,0.01,0.04', []),
        ('0.02,0.01,0.04', ['flops']),
        ('0.001', ['flops', 'parameters', 'kv']),
    ],
)
def test_what_is_outside_the_tolerance_is_said(tmp_path, bounds, outside):
    file = tmp_path / 'pair.json'
    done = budget(f'--config={CELL}-smelt', f'--against={CELL}-baseline', f'--tolerance={bounds}', f'--json={file}')
    assert f' of KV: {", ".join(outside) or "nothing"} outside\n' in done.stdout
    assert json.loads(file.read_text())['outside'] == outside


def test_the_grid_has_all_cells_within_the_published_bounds(tmp_path):
    file = tmp_path / 'grid.json'
    done = budget('--grid', f'--json={file}')
    assert done.returncode == 0, done.stderr
    assert '16 pairs at T̄ = 401' in done.stdout
    assert 'FLOPs 3.9%, parameters 1.0%, KV 3.6%' in done.stdout
    data = json.loads(file.read_text())
    assert [cell['name'] for cell in data['cells'] if cell['published']] == [
        '100m-s97',
        '200m-s95',
        '600m-s97',
        '1.6b-s97',
    ]


@pytest.mark.parametrize('name', ['grid', 'ablations'])
def test_the_documents_are_what_the_command_writes(tmp_path, name):
    """Run the first line of the file to bring it up to date."""
    done = budget('--grid', f'--experiment=experiments/{name}.py', f'--markdown={tmp_path}/new.md')
    assert done.returncode == 0, done.stderr
    new, old = (file.read_text().split('\n', 1) for file in (tmp_path / 'new.md', ROOT / 'docs' / f'{name}.md'))
    assert new[1] == old[1]
    assert old[0].startswith('# smelt budget --grid')


def test_one_config_has_its_parts_and_its_tokens():
    done = budget(f'--config={CELL}-smelt', '--mean_attended_keys=401')
    assert done.returncode == 0, done.stderr
    for figure in ('3,888,783,360', '70,963,200', '1.369e+09', '2.056e+11'):
        assert figure in done.stdout


def test_no_partner_is_said_and_is_an_exit_code(tmp_path):
    file = tmp_path / 'match.json'
    done = budget(f'--config={CELL}-baseline', '--match', '--tolerance=0.0001', '--count=1', f'--json={file}')
    assert done.returncode == 1
    assert done.stderr.startswith('smelt budget: error: no partner within tolerance 0.0001 of FLOPs')
    assert 'the nearest is off by' in done.stderr
    assert done.stderr.count('\n') == 1
    assert json.loads(file.read_text())['within'] is False


def test_a_partner_is_listed_with_its_reason():
    done = budget(f'--config={CELL}-baseline', '--match', '--count=2')
    assert done.returncode == 0, done.stderr
    assert '3+6×2+3' in done.stdout
    assert '\n1. furthest off: ' in done.stdout


@pytest.mark.parametrize(
    ('args', 'words'),
    [
        ([], '--config=FILE.py:ARG is required, or --grid'),
        (['--grid', '--match'], '--grid and --match: ask one thing at a time'),
        ([f'--config={CELL}-baseline', '--match', f'--against={CELL}-smelt'], '--match and --against: ask one thing'),
        ([f'--config={CELL}-smelt', f'--against={CELL}-baseline', '--tolerance=nan'], 'more than 0 and less than 1'),
        ([f'--config={CELL}-baseline', '--match', '--tolerance=inf'], 'more than 0 and less than 1'),
        (
            [f'--config={CELL}-baseline', '--match', '--layers=10000'],
            'with 10000 layers, 2 visits and 8 experts a token',
        ),
        (['--grid', '--experiment=experiments/tiny_moe.py'], ' beside it; there are '),
        (['--grid', '--json=/no/where.json'], '--json=/no/where.json: /no is no folder that can be written'),
        (['--grid', '--json=x', '--markdown=x'], '--json and --markdown are both x'),
        ([f'--config={CELL}-baseline', '--match', '--tolerance=0'], 'more than 0'),
        ([f'--config={CELL}-baseline', '--match', '--tolerance=1,2'], 'give one fraction, or three'),
        ([f'--config={CELL}-baseline', '--match', '--span=0'], 'loops none of them'),
        ([f'--config={CELL}-baseline', '--config.model.attention.heads=7'], 'not divisible by kv_heads=4'),
    ],
)
def test_bad_input_is_one_line(args, words):
    done = budget(*args)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert done.stderr.count('\n') == 1
