"""The command line: pages worth reading, and wrong ones that end non-zero with one line that names what is wrong."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt_jax.cli import pages
from smelt_jax.cli.flags import find_experiment
from smelt_jax.version import __version__

ROOT = Path(__file__).parents[1]

# A verb with everything a verb can have, beside the real ones.
VERB = '''
"""Tries things out.

What stands here is on the page of the verb.
"""
from absl import flags
from smelt_jax.cli.flags import define_config, define_workdir, run_config

def define_flags():
    define_config()
    define_workdir('Where nothing is written.')
    flags.DEFINE_enum('fail', 'no', ['no', 'value', 'system', 'bug', 'deep'], 'How it ends.')
    flags.DEFINE_bool('loud', False, 'Says more.')

def run():
    config = run_config()
    print(config.model.width, config.optim.peak_lr, config.train.branch_steps, config.pack.corpora, config.data.repeat)
    match flags.FLAGS.fail:
        case 'value': raise ValueError('heads=3 is not divisible; choose 4')
        case 'system': open('/nowhere/at/all')
        case 'bug': raise RuntimeError('a bug')
        case 'deep': __import__('json').loads('{')
'''

EXPERIMENT = """
from smelt_jax.config import default_config

ARGS = ('wide', 'broken')

def get_config(arg='narrow'):
    config = default_config()
    if arg == 'broken':
        config.widht + 1
    config.model.width = {'narrow': 64, 'wide': 128}[arg]
    return config
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope='module')
def tryout(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs `smelt tryout ARGS`: the verb above, with the experiment above as one.py in the working folder."""
    folder = tmp_path_factory.mktemp('tryout')
    (folder / 'verbs').mkdir()
    (folder / 'verbs' / 'tryout.py').write_text(VERB.strip())
    (folder / 'one.py').write_text(EXPERIMENT)
    (folder / 'typo.py').write_text('x = 1\ndef f(:\n')
    (folder / 'none.py').write_text('"""No experiment."""\n')
    code = (
        'import sys, smelt_jax.cli; smelt_jax.cli.__path__.append("verbs");'
        'from smelt_jax.cli.main import main; sys.exit(main())'
    )

    def run(*args: str, code_of: str = 'tryout') -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, '-c', code, code_of, *args],
            cwd=folder,
            env={'PYTHONPATH': str(ROOT), 'PATH': '/usr/bin:/bin'},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


GOOD = ('--config=one.py', '--workdir=x')


def test_the_front_page_lists_every_verb_and_imports_nothing_slow(smelt: Run) -> None:
    page = smelt('--help').stdout
    assert page == smelt().stdout
    assert 'Usage:' in page
    for verb, line in pages.verbs().items():
        assert f'    {verb}' in page
        assert line.split()[0] in page
    code = 'import sys; from smelt_jax.cli.main import main; main([]); assert not {"jax", "numpy"} & sys.modules.keys()'
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_every_verb_has_its_place_and_a_line() -> None:
    found = pages.verbs()
    assert list(found) == [verb for verb in pages.ORDER if verb in found], 'a new verb needs its place in pages.ORDER'
    assert [verb for verb, line in found.items() if not 10 < len(line) < 110] == []


@pytest.mark.parametrize('verb', pages.verbs())
def test_every_verb_has_a_page(smelt: Run, verb: str) -> None:
    page = smelt(verb, '--help').stdout
    assert page.startswith(f'smelt {verb}: ')
    assert '\nFlags:\n' in page
    assert '--logtostderr' not in page
    assert ('\n  --config ' in page) == ('model.experts.per_token=8' in page)


def test_version(smelt: Run) -> None:
    assert smelt('--version').stdout == f'smelt_jax {__version__}\n'


def test_the_page_of_a_verb(tryout: Run) -> None:
    done = tryout('--help')
    assert done.returncode == 0
    assert done.stdout.startswith('smelt tryout: Tries things out.\n\nWhat stands here is on the page of the verb.\n')
    for part in (
        '--workdir',
        '--fail=no ',
        'no | value | system',
        '--[no]loud',
        '  model.width=256',
        'queries and keys, before the rotation',
    ):
        assert part in done.stdout
    assert '--logtostderr' not in done.stdout
    assert 'tryout  ' in tryout(code_of='--help').stdout


@pytest.mark.parametrize(
    ('args', 'shown'),
    [
        ([], "64 0.001 () ('local',) False"),
        (['--config=one.py:wide'], "128 0.001 () ('local',) False"),
        (['--config.optim.peak_lr=1'], "64 1.0 () ('local',) False"),
        (['--config.optim.peak_lr', '0.1'], "64 0.1 () ('local',) False"),
        (['--config.train.branch_steps=(10,20)'], "64 0.001 (10, 20) ('local',) False"),
        (['--config.train.branch_steps=10'], "64 0.001 (10,) ('local',) False"),
        (['--config.pack.corpora=text:/a/b'], "64 0.001 () ('text:/a/b',) False"),
        (['--config.data.repeat'], "64 0.001 () ('local',) True"),
        (['--config.data.repeat=false'], "64 0.001 () ('local',) False"),
    ],
)
def test_overrides(tryout: Run, args: list[str], shown: str) -> None:
    done = tryout(*GOOD, *args)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown + '\n', '')


@pytest.mark.parametrize(
    ('args', 'line'),
    [
        ([*GOOD, 'foo'], "stray word 'foo'"),
        ([*GOOD, '--loud', 'False'], "stray word 'False'; a switch is --name or --noname"),
        ([*GOOD, '--config.data.repeat', 'True'], "stray word 'True'; a switch is"),
        ([*GOOD, '--confgi=one.py'], 'confgi'),
        ([*GOOD, '--fail=maybe'], 'value should be one of <no|value|'),
        (
            [*GOOD, '--config.model.widht=3'],
            '--config.model.widht=3: there is no key model.widht; did you mean model.width?',
        ),
        ([*GOOD, '--config.per_token=3'], 'did you mean model.experts.per_token?'),
        ([*GOOD, '--config.optim.peak_lr=abc'], "--config.optim.peak_lr=abc: could not convert string to float: 'abc'"),
        ([*GOOD, '--config.train.steps=0.5'], '--config.train.steps=0.5'),
        ([*GOOD, '--config.train.branch_steps=abc'], "train.branch_steps[0]='abc': expected int"),
        ([*GOOD, '--config.model.experts=3'], '--config.model.experts=3'),
        ([*GOOD, '--config.model.experts.per_token=99'], 'count=32 is less than per_token=99'),
        (['--workdir=x'], '--config is required'),
        (['--config=one.py'], '--workdir is required'),
        (['--workdir=x', '--config.model.width=3'], 'overrides a key of --config=FILE.py, which is missing'),
        (['--config=gone.py'], "no experiment at 'gone.py'; there are "),
        (['--config=typo.py'], 'typo.py, line 2: '),
        (['--config=none.py'], 'none.py has no get_config(arg)'),
        (['--config=one.py:round'], "one.py has no run 'round'; choose one of wide, broken"),
        ([*GOOD, '--fail=value'], 'heads=3 is not divisible; choose 4'),
        ([*GOOD, '--fail=system'], '/nowhere/at/all: No such file or directory'),
    ],
)
def test_what_a_user_can_put_right_is_one_line(tryout: Run, args: list[str], line: str) -> None:
    done = tryout(*args)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith('smelt tryout: error: ')
    assert line in done.stderr.splitlines()[0]
    assert 'Traceback' not in done.stderr


def test_an_unknown_verb_is_named_with_the_nearest(tryout: Run) -> None:
    done = tryout(code_of='tryuot')
    assert done.returncode == 2
    assert done.stderr == "smelt: error: no verb 'tryuot'; did you mean tryout?\n"


@pytest.mark.parametrize('args', [['--fail=bug'], ['--fail=value', '--debug'], ['--config=one.py:broken']])
def test_a_bug_keeps_its_traceback(tryout: Run, args: list[str]) -> None:
    done = tryout(*GOOD, *args)
    assert done.returncode == 1
    assert 'Traceback' in done.stderr


def test_an_error_of_a_library_says_where_it_was_raised(tryout: Run) -> None:
    done = tryout(*GOOD, '--fail=deep')
    assert done.returncode == 1
    assert 'json' in done.stderr.splitlines()[1]
    assert '--debug' in done.stderr.splitlines()[1]


def test_an_experiment_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_experiment('experiments/smelt.py') == ROOT / 'experiments' / 'smelt.py'
    (tmp_path / 'experiments').mkdir()
    (tmp_path / 'experiments' / 'smelt.py').touch()
    assert find_experiment('experiments/smelt.py') == Path('experiments/smelt.py')  # the nearer one
    with pytest.raises(FileNotFoundError, match=r"no experiment at 'smelt\.py'; there are .*experiments/smelt\.py"):
        find_experiment('smelt.py')
