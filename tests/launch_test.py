"""The launch scripts: which Python they take, what they say where there is none, what they leave alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / '.ci' / 'run']


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of commands that is all of PATH: no Python yet."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    for name in ('bash', 'basename', 'dirname', 'cat', 'find', 'mkdir', 'rmdir', 'rm'):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def command(folder: Path, name: str, body: str) -> Path:
    """Adds a command to a machine."""
    path = folder / name
    path.write_text(f'#!{shutil.which("bash")}\n{body}\n')
    path.chmod(0o755)
    return path


def bash(machine: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs bash with launch/venv.sh sourced, on that machine."""
    return subprocess.run(
        [str(machine / 'bash'), '-c', f'set -euo pipefail; source "$0"; {code}', str(ROOT / 'launch' / 'venv.sh')],
        env={'PATH': str(machine), 'HOME': str(machine.parent)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


FIND = 'find_python 3.11; echo "$python"'
WORKS = f'exec "{sys.executable}" "$@"'


@pytest.mark.parametrize('path', SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_that_stops_at_the_first_error(path: Path) -> None:
    subprocess.run(['bash', '-n', path], check=True)
    if path.name != 'venv.sh':  # sourced
        assert 'set -euo pipefail' in path.read_text()
        assert os.access(path, os.X_OK)


def test_no_python_at_all(machine: Path) -> None:
    done = bash(machine, FIND)
    assert done.returncode != 0
    assert 'needs Python 3.11 or newer' in done.stderr
    assert done.stderr.rstrip().endswith('none')


def test_each_candidate_is_tried_and_the_first_that_works_is_taken(machine: Path) -> None:
    command(machine, 'python3.11', 'echo "pyenv: python3.11: command not found" >&2; exit 127')
    command(machine, 'python3.12', 'echo -n "3.12.0 without venv and ensurepip (on Debian and Ubuntu: …)"')
    done = bash(machine, FIND)
    assert done.returncode != 0
    assert f'{machine}/python3.11: does not start' in done.stderr
    assert f'{machine}/python3.12: 3.12.0 without venv and ensurepip' in done.stderr

    good = command(machine, 'python3', WORKS)
    assert bash(machine, FIND).stdout == f'{good}\n'


def test_a_python_that_is_too_old_says_so(machine: Path) -> None:
    command(machine, 'python3', WORKS)
    done = bash(machine, 'find_python 3.99')
    assert done.returncode != 0
    version = '.'.join(str(part) for part in sys.version_info[:3])
    assert f'{machine}/python3: {version}, older than 3.99' in done.stderr


def test_a_python_of_pyenv_is_found_off_the_path(machine: Path) -> None:
    folder = machine.parent / '.pyenv' / 'versions' / '3.12.1' / 'bin'
    folder.mkdir(parents=True)
    good = command(folder, 'python3', WORKS)
    assert bash(machine, FIND).stdout == f'{good}\n'


def test_python_in_the_environment_is_the_only_candidate(machine: Path) -> None:
    command(machine, 'python3', WORKS)
    done = bash(machine, FIND, PYTHON='/no/such/python')
    assert done.returncode != 0
    assert '/no/such/python: does not start' in done.stderr
    assert str(machine) not in done.stderr


def test_a_folder_that_is_not_ours_is_left_alone(machine: Path, tmp_path: Path) -> None:
    command(machine, 'python3', WORKS)
    mine = tmp_path / 'mine'
    mine.mkdir()
    (mine / 'keep').touch()
    done = bash(machine, f'ROOT={tmp_path}; use_venv mine tested run 3.11')
    assert done.returncode != 0
    assert f'{mine} was not made by this script' in done.stderr
    assert [path.name for path in mine.iterdir()] == ['keep']
