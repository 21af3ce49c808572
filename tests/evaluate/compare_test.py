"""Two arms side by side: differences, ratios and medians are those of the records, and unlike things are not compared."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import rich.console
from runs_helper import RUN, edit

from smelt_jax.evaluate.compare import Arm, compare, tables
from smelt_jax.evaluate.tables import number, record_tables
from smelt_jax.runs import Lineage, RunDir

REFERENCES = {'byte trigram': 3.25, 'xz -9': 2.5}
BUDGET = {'flops_per_token': 1000.0, 'parameters': 400, 'kv_values_per_token': 32}


def entry(loss: float | None, targets: int) -> dict:
    return {
        'loss': loss,
        'bits_per_byte': None if loss is None else loss * 1.5,
        'targets': targets,
        'bytes': targets - 1 if targets else 0,
    }


def record(kind: str, step: int, trunk_step: int, loss: float, scale: float = 1.0, **changes: object) -> dict:
    """Held out: 10 tokens of Web in two sources, 20 of Code; no long document."""
    made = {
        'task': 'heldout', 'name': 'tiny', 'kind': kind, 'step': step, 'trunk_step': trunk_step, 'pack': 'rows',
        'visits': 1, 'trained_visits': 1, 'tokens_seen': step * 64, 'flops': step * 64 * 1000.0 * scale,
        **{key: value * scale for key, value in BUDGET.items()},
        **entry(loss, 30),
        'by_source': {'blogs': entry(loss + 0.5, 4), 'forums': entry(loss, 6), 'tools': entry(loss - 0.1, 20)},
        'by_domain': {'Web': entry(loss + 0.2, 10), 'Code': entry(loss - 0.1, 20)},
        'by_length': {'<512': entry(loss, 30), '≥512': entry(None, 0)},
    }  # fmt: skip
    return made | changes


@pytest.fixture
def make_arm(tmp_path: Path) -> Callable[..., Arm]:
    """make(name, losses, scale) is a trunk with records of steps 5 and 10 and a branch from 10, of these three losses."""

    def make(name: str, losses: tuple[float, ...], scale: float = 1.0, pack: str = 'rows', **changes: object) -> Arm:
        run = edit(RUN, name=name)
        trunk, leaf = RunDir(tmp_path / name / 'trunk'), RunDir(tmp_path / name / 'leaf')
        trunk.claim(run, Lineage('trunk', pack, 'bytes', 0, 12))
        leaf.claim(run, Lineage('branch', pack, 'bytes', 10, 17, '../trunk', 'c0ffee'))
        places = [('trunk', 5, 5), ('trunk', 10, 10), ('branch', 17, 10)]
        records = [
            record(*place, loss, scale, pack=pack, **changes) for place, loss in zip(places, losses, strict=True)
        ]
        trunk.put_records(records[:2])
        leaf.put_records(records[2:])
        lines = [{'step': step, 'tokens_per_second': 100.0 * step * scale, 'mfu': step / 10} for step in (1, 2, 9)]
        trunk.metrics_file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
        return Arm(name, trunk, [leaf])

    return make


def shown(comparison: dict) -> str:
    console = rich.console.Console(width=150, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        for table in tables(comparison):
            console.print(table)
    return capture.get()


def test_a_comparison_is_the_arithmetic_of_the_records(make_arm: Callable) -> None:
    comparison = compare(make_arm('wide', (3.0, 2.5, 2.0)), make_arm('loop', (3.25, 2.5, 1.75), 0.5), REFERENCES)
    assert comparison['arms'] == ['wide', 'loop']
    places = [(pair['kind'], pair['trunk_step'], pair['step'], pair['tokens_seen']) for pair in comparison['endpoints']]
    assert places == [('trunk', 5, 5, 320), ('trunk', 10, 10, 640), ('branch', 10, 17, 1088)]
    assert [pair['difference'] for pair in comparison['endpoints']] == [0.25, 0.0, -0.25]
    last = comparison['endpoints'][-1]
    assert last['loss'] == [2.0, 1.75]
    assert last['flops'] == [1088e3, 544e3]
    assert last['bits_per_byte'] == [3.0, 2.625]
    assert last['by_domain']['Web']['difference'] == pytest.approx(-0.25)
    assert last['by_domain']['Web']['targets'] == 10
    assert last['by_source'].keys() == {'blogs', 'forums', 'tools'}
    assert last['by_length']['≥512']['difference'] is None
    assert [budget['ratio'] for budget in comparison['budgets'].values()] == [0.5, 0.5, 0.5]
    assert comparison['budgets']['training FLOPs per token']['baseline'] == 1000
    assert comparison['speed'] == {
        'wide': {'tokens_per_second': 200.0, 'mfu': 0.2},
        'loop': {'tokens_per_second': 100.0, 'mfu': 0.2},
    }
    assert comparison['references'] == REFERENCES
    assert json.loads(json.dumps(comparison)) == comparison


def test_the_tables_show_it(make_arm: Callable) -> None:
    text = shown(compare(make_arm('wide', (3.0, 2.5, 2.0)), make_arm('loop', (3.25, 2.5, 1.75), 0.5), REFERENCES))
    for row in (
        ['trunk', '5', '320', '3.2e+05', '1.6e+05', '3.0000', '3.2500', '+0.2500', '4.500', '4.875'],
        ['annealed', '10', '1,088', '1.09e+06', '5.44e+05', '2.0000', '1.7500', '-0.2500', '3.000', '2.625'],
        ['byte trigram', '3.250', '3.250'],
        ['xz -9', '2.500', '2.500'],
        ['Web', '2.2000', '1.9500', '-0.2500', '10'],
        ['≥512', '–', '–', '–', '0'],
        ['training FLOPs per token', '1,000', '500', '0.500'],
        ['KV values per token', '32', '16', '0.500'],
        ['loop', '100', '0.200'],
    ):
        lines = [[cell for cell in map(str.strip, line.split('│')) if cell] for line in text.splitlines()]
        assert row in lines, row


def test_other_evaluations_are_left_out(make_arm: Callable) -> None:
    """Of other visits, of other rows, of other tasks; and a checkpoint that one arm alone was evaluated at."""
    wide, loop = make_arm('wide', (3.0, 2.5, 2.0)), make_arm('loop', (3.0, 2.5, 2.0))
    before = compare(wide, loop, REFERENCES)
    wide.trunk.put_records(
        [
            record('trunk', 5, 5, 9.0, visits=2),
            record('trunk', 5, 5, 9.0, pack='others'),
            record('trunk', 5, 5, 9.0, task='arc'),
            record('trunk', 11, 11, 9.0),
        ]
    )
    assert compare(wide, loop, REFERENCES) == before


def test_arms_of_different_rows_are_not_compared(make_arm: Callable) -> None:
    wide, loop = make_arm('wide', (3.0, 2.5, 2.0)), make_arm('loop', (3.0, 2.5, 2.0), pack='others')
    with pytest.raises(ValueError, match='the arms read different packs: rows and others'):
        compare(wide, loop, REFERENCES)


@pytest.mark.parametrize(
    'changes',
    [{'by_length': {'all': entry(2.0, 30)}}, {'by_domain': {'Web': entry(2.0, 11), 'Code': entry(2.0, 19)}}],
    ids=['other bins', 'other rows'],
)
def test_arms_that_were_scored_on_different_text_are_not_compared(make_arm: Callable, changes: dict) -> None:
    wide, loop = make_arm('wide', (3.0, 2.5, 2.0)), make_arm('loop', (3.0, 2.5, 2.0), **changes)
    with pytest.raises(ValueError, match='step 5 of the arms was scored on different held-out text'):
        compare(wide, loop, REFERENCES)


def test_arms_without_a_common_checkpoint_are_not_compared(make_arm: Callable, tmp_path: Path) -> None:
    wide = make_arm('wide', (3.0, 2.5, 2.0))
    other = RunDir(tmp_path / 'other')
    other.claim(RUN, Lineage('trunk', 'rows', 'bytes', 0, 12))
    with pytest.raises(ValueError, match=r'trunk and .*other have no evaluated checkpoint in common'):
        compare(wide, Arm('other', other, []), REFERENCES)
    other.put_records([record('trunk', 5, 5, 2.0)])
    with pytest.raises(ValueError, match=r'other/metrics\.jsonl has no line: train the trunk of other first'):
        compare(wide, Arm('other', other, []), REFERENCES)


def test_a_records_tables_have_every_group() -> None:
    console = rich.console.Console(width=120)
    with console.capture() as capture:
        for table in record_tables(record('trunk', 5, 5, 2.0)):
            console.print(table)
    text = capture.get()
    assert 'tiny, step 5, 1 visit(s): held-out loss' in text
    lines = [[cell for cell in map(str.strip, line.split('│')) if cell] for line in text.splitlines()]
    for row in (
        ['all', '2.0000', '3.0000', '30', '29'],
        ['Code', '1.9000', '2.8500', '20', '19'],
        ['blogs', '2.5000', '3.7500', '4', '3'],
        ['≥512', '–', '–', '0', '0'],
    ):
        assert row in lines, row


def test_a_number_or_a_dash() -> None:
    assert (number(1.23456), number(1.23456, 2), number(None)) == ('1.2346', '1.23', '–')
