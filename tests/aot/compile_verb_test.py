"""`smelt compile`: the facts of a program for eight CPUs, what does not fit, --remat=auto, and lines for what is wrong."""

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from models import edit, looped
from topologies import devices_of

from smelt_jax.aot import answers, facts, program
from smelt_jax.aot.topology import Topology
from smelt_jax.aot.units import GIB
from smelt_jax.config import RunConfig
from smelt_jax.data.config import PackConfig, RowsConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
from smelt_jax.screen import give
from smelt_jax.train.config import OptimConfig

# One stack of two layers, since a loop of one turn is dissolved; wide enough that norms and counts, of which no formula
# knows, are few.
MODEL = edit(looped(0, 2, 0, 2), vocab=128, width=64, experts__count=8, experts__width=64, attention__head_dim=32)
RUN = RunConfig(
    name='small',
    model=MODEL,
    pack=PackConfig(row_tokens=256),
    data=RowsConfig(batch_rows=32),
    mesh=MeshConfig(replica=2, fsdp=2, expert=2),
)
EIGHT = Topology.of('cpu:8')
pytestmark = pytest.mark.usefixtures('quick')


@pytest.fixture(scope='module')
def compiled() -> Callable[[str], program.Program]:
    """The step of RUN under a policy, compiled once."""
    made: dict[str, program.Program] = {}

    def of(remat: str) -> program.Program:
        if remat not in made:
            run = dataclasses.replace(RUN, model=edit(MODEL, remat=remat))
            made[remat] = program.compile_step(run, Devices.of(run.mesh, EIGHT.devices()))
        return made[remat]

    return of


@pytest.fixture
def reused(compiled, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes `answers` take its programs from `compiled`; the policies it asked for."""
    asked: list[str] = []

    def of(run: RunConfig, devices: Devices) -> program.Program:
        asked.append(run.model.remat)
        return compiled(run.model.remat)

    monkeypatch.setattr(answers, 'compile_step', of)
    return asked


def test_the_facts_of_a_program(compiled) -> None:
    devices = Devices.of(RUN.mesh, EIGHT.devices())
    found = facts.facts_of(compiled('none'), devices, EIGHT)
    memory = found.memory
    assert memory is not None
    # The state is 12 bytes a parameter that a device has, and all of it but a few counts is given back in its place.
    leaves = jax.tree.leaves(program.abstract_arguments(RUN, devices)[0].params)
    parameters = sum(jax.numpy.zeros(leaf.sharding.shard_shape(leaf.shape)).size for leaf in leaves)
    batch = 5 * 4 * RUN.data.batch_rows // 8 * RUN.pack.row_tokens
    assert memory.arguments == pytest.approx(12 * parameters + batch, rel=0.01)
    assert memory.arguments == pytest.approx(found.arguments, rel=0.01)
    assert memory.aliased == pytest.approx(12 * parameters, rel=0.01)
    assert found.needs == memory.arguments + memory.outputs - memory.aliased + memory.temporaries + memory.code
    assert memory.temporaries > found.temporaries[0].bytes > 0
    for axis, formula in found.formula.items():
        assert found.sent_by_axis[axis] == pytest.approx(formula, rel=0.05), axis
    assert found.instructions > 1000
    assert found.fits
    assert not found.remedy


def test_no_array_is_quadratic_in_the_length(compiled) -> None:
    found = facts.facts_of(compiled('none'), Devices.of(RUN.mesh, EIGHT.devices()), EIGHT)
    length = str(RUN.pack.row_tokens)
    for temporary in found.temporaries:
        dims = temporary.shape.partition('[')[2].rstrip(']').split(',')
        assert dims.count(length) <= 1, temporary


def test_auto_takes_the_first_policy_that_fits(compiled, reused: list[str]) -> None:
    needs = [compiled(remat).needs for remat in ('none', 'dots')]
    assert needs[0] > needs[1]
    between = dataclasses.replace(EIGHT, memory=sum(needs) / 2)
    found = answers.answer(RUN, between, 'auto')
    assert reused == ['none', 'dots']
    assert not found.trouble
    assert (found.data['remat'], found.data['fits']) == ('dots', True)
    assert [each['fits'] for each in found.data['tried']] == [False]
    reused.clear()
    assert not answers.answer(RUN, dataclasses.replace(EIGHT, memory=2 * needs[0]), 'auto').trouble
    assert reused == ['none']


def test_what_does_not_fit_ends_with_a_remedy(compiled, reused: list[str], tmp_path: Path) -> None:
    needs = compiled('none').needs
    found = answers.answer(RUN, dataclasses.replace(EIGHT, memory=0.9 * needs))
    assert found.trouble.startswith('small does not fit: it needs ')
    assert '; try --config.' in found.trouble
    with pytest.raises(ValueError, match='small does not fit'):
        give(lambda: found, 'smelt compile', str(tmp_path / 'facts.json'), None)
    data = json.loads((tmp_path / 'facts.json').read_text())
    assert (data['fits'], data['needs'], data['limit']) == (False, needs, 0.9 * needs)
    assert data['memory']['temporaries'] == compiled('none').memory.temporaries
    assert data['work']['total'] == compiled('none').work.total
    assert {'kind', 'axes', 'bytes'} == data['collectives'][0].keys()


def test_a_text_that_cannot_be_read_is_told_and_the_rest_is_there(compiled, reused, monkeypatch) -> None:
    class Unreadable:
        def as_text(self) -> str:
            raise jax.errors.JaxRuntimeError('INTERNAL: RET_CHECK failure\nmore')

    text, unreadable = program._text(Unreadable())
    assert text == ''
    monkeypatch.setattr(
        answers,
        'compile_step',
        lambda run, devices: dataclasses.replace(compiled('none'), text=text, unreadable=unreadable),
    )
    found = answers.answer(RUN, EIGHT)
    assert any('not readable' in line and 'jax ≥ 0.12' in line and 'RET_CHECK' in line for line in found.lines)
    assert found.data['collectives_read'] is False
    assert found.data['memory'] is not None


def test_a_refusal_of_the_compiler_is_a_program_that_does_not_fit(compiled, reused, monkeypatch) -> None:
    class Refuses:
        def compile(self) -> None:
            raise jax.errors.JaxRuntimeError(
                'RESOURCE_EXHAUSTED: E1000: Ran out of memory on HBM, the total memory required for HLO temporaries '
                '(18.00G) exceeds available HBM (15.75G). HLO module: jit_step.'
            )

    made = program.compiled_of(Refuses())
    assert (made.memory, made.needs) == (None, 18 * GIB)
    refused = dataclasses.replace(compiled('none'), memory=None, needs=made.needs, text='', unreadable=made.unreadable)
    monkeypatch.setattr(answers, 'compile_step', lambda run, devices: refused)
    found = answers.answer(RUN, Topology.of('cpu:8', memory=15.75 * GIB))
    assert 'needs 18.00 GiB of 15.75 GiB a device; try ' in found.trouble


@pytest.mark.parametrize(
    ('changes', 'complaint'),
    [
        ({'mesh': MeshConfig(2, 2, 1)}, 'cpu:8 has 8 devices, and config.mesh takes 4'),
        ({'mesh': MeshConfig(2, 2, 4)}, 'on 8 devices: sizes must multiply'),
        (
            {'mesh': MeshConfig(1, 1, 8), 'model': edit(MODEL, experts__count=6)},
            'count=6 is not divisible by mesh.expert',
        ),
        ({'data': RowsConfig(batch_rows=12)}, 'batch_rows=12 rows are not divisible by 8 devices'),
        ({'optim': OptimConfig(accumulate=3)}, 'not divisible by optim.accumulate=3'),
        ({'data': RowsConfig(pack='/no/such/pack')}, '/no/such/pack'),
    ],
)
def test_what_does_not_fit_together_is_told_before_any_work(changes, complaint: str, reused: list[str]) -> None:
    with pytest.raises((ValueError, OSError)) as error:
        answers.answer(dataclasses.replace(RUN, **changes), EIGHT)
    assert complaint in str(error.value)
    assert reused == []


def test_an_exchange_that_the_devices_do_not_have_is_told_before_the_step() -> None:
    ragged = MeshConfig(1, 1, -1, exchange='ragged')
    program.check_exchange(Devices.of(ragged, EIGHT.devices()))
    program.check_exchange(Devices.of(ragged, devices_of('v5e:2x4')))
    with pytest.raises(ValueError, match=r'exchange=ragged cannot be compiled .*; use --config\.mesh\.exchange=gather'):
        program.check_exchange(Devices.of(ragged, devices_of('v5e:4x8')))


def test_another_failure_of_the_compiler_is_one_line(monkeypatch) -> None:
    def fails(run: RunConfig, devices: Devices) -> program.Program:
        raise jax.errors.JaxRuntimeError('INTERNAL: no such thing\nand the whole program')

    monkeypatch.setattr(answers, 'compile_step', fails)
    with pytest.raises(ValueError, match=r'^the compiler for CPU failed: INTERNAL: no such thing$'):
        answers.answer(RUN, EIGHT)


def run_of(smelt, *words: str, code: int, **env: str) -> subprocess.CompletedProcess[str]:
    return smelt('compile', '--config=experiments/quickstart.py:smelt', *words, code=code, **env)


def test_the_command_ends_with_one_line(smelt) -> None:
    done = run_of(smelt, '--topology=v5x:2x2', code=1)
    assert done.stderr.startswith("smelt compile: error: --topology=v5x:2x2: no hardware 'v5x'")
    assert done.stderr.count('\n') == 1


def test_the_command_compiles_for_cpus_that_are_not_there(smelt, tmp_path: Path, quick_env) -> None:
    path = tmp_path / 'facts.json'
    small = ('layers=2', 'loop.start=0', 'loop.length=2', 'width=32', 'experts.count=4')
    words = ('--topology=cpu:2', f'--json={path}', '--memory=0.001', '--config.pack.row_tokens=64')
    done = run_of(smelt, *words, *(f'--config.model.{key}' for key in small), code=1, **quick_env)
    assert 'smelt does not fit' in done.stderr
    assert 'Largest temporaries' in done.stdout
    assert json.loads(path.read_text())['mesh'] == {'replica': 1, 'fsdp': 2, 'expert': 1}
