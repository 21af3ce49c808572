"""The short campaign: a few disturbances of each kind. And the tests of the campaign: what is lost is seen."""

import json
import os
import shutil
from types import ModuleType

import pytest

from faults import campaign, company, damage, disks, kills, signals, table
from faults.campaign import Row
from faults.looks import Lost
from faults.scenario import Scenario, Seen, Skip
from faults.world import World

PARTS = (kills, signals, disks, damage, company)
SCENARIOS = [scenario for part in PARTS for scenario in part.scenarios()]


@pytest.fixture(scope='module')
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp('world'))


@pytest.mark.parametrize('scenario', [s for s in SCENARIOS if s.short], ids=lambda scenario: scenario.line)
def test_nothing_is_lost(world: World, scenario: Scenario) -> None:
    (row,) = campaign.run(world, [scenario], short=True)
    if row.skipped:
        pytest.skip(row.skipped)
    assert not row.lost
    assert row.equal == row.runs >= scenario.short
    assert not row.missed


@pytest.mark.parametrize('verb', ['train', 'branch', 'evaluate', 'pack'])
def test_a_changed_result_is_seen(world: World, verb: str) -> None:
    """Each part of a result is compared: an array, a line of metrics, a record, a file of the pack."""
    place, reference = world.place(), world.reference
    target = place.target(verb)
    shutil.copytree(reference.target(verb), target)
    place.compare(verb)
    if verb in ('train', 'branch'):
        file = target / 'metrics.jsonl'
        lines = file.read_text().splitlines()
        lines[3] = json.dumps(json.loads(lines[3]) | {'loss': 1.0})
        file.write_text('\n'.join(lines) + '\n')
        with pytest.raises(Lost, match=r'metrics, line \d+ differ'):
            place.compare(verb)
        shutil.copy(reference.target(verb) / 'metrics.jsonl', file)
        last = max((path for path in (target / 'checkpoints').iterdir()), key=lambda path: int(path.name))
        stored = max(last.glob('optimizer/ocdbt.process_0/d/*'), key=lambda path: path.stat().st_size)
        stored.write_bytes(
            bytes(byte ^ 255 for byte in stored.read_bytes())
        )  # one byte alone may be of what nobody reads
    elif verb == 'evaluate':
        file = target / 'records.jsonl'
        file.write_text(file.read_text() * 2)
    else:
        next(target.glob('train-*')).write_bytes(b'')
    with pytest.raises(Lost, match=r'differ from the undisturbed run|cannot be read'):
        place.compare(verb)


def test_what_is_lost_is_counted_and_kept(world: World) -> None:
    def lose(place, _) -> Seen:
        raise Lost('all of it')

    def fail(place, _) -> Seen:
        raise KeyError('a fault of the campaign')

    def skip(place, _) -> Seen:
        raise Skip('no such machine')

    said: list[str] = []
    scenarios = [Scenario(f'{act.__name__} it', act, (), 2) for act in (lose, fail, skip)]
    rows = campaign.run(world, scenarios, say=said.append)
    assert [(row.runs, row.equal, len(row.lost), row.skipped) for row in rows] == [
        (2, 0, 2, ''),
        (2, 0, 2, ''),
        (0, 0, 0, 'no such machine'),
    ]
    assert said[0].startswith('lose it: too late: LOST: all of it (in ')
    assert os.path.isdir(said[0].rpartition('(in ')[2][:-1])
    text = table.table(rows)
    assert '| lose it | 0 | 0 |  |  | 2 | 0 | 2 |  |' in text
    assert 'LOST: lose it: all of it' in text
    assert 'Not done here: skip it: no such machine.' in text


def test_the_table_takes_its_place_and_nothing_else() -> None:
    begin, end = '<!-- kills: written by launch/faults.sh -->', '<!-- end of kills -->'
    before = f'# A\n\n{begin}\nold\n{end}\n\nmore\n'
    new = table.table([Row('a line', runs=1, equal=1)])
    after = table.replaced(before, 'kills', new)
    assert after == f'# A\n\n{begin}\n\n{new}\n\n{end}\n\nmore\n'
    assert table.replaced(after, 'kills', new) == after
    with pytest.raises(ValueError, match='put these lines where the table shall be'):
        table.replaced('# A\n', 'kills', new)


@pytest.mark.parametrize('part', PARTS)
def test_the_document_has_room_for_the_table(part: ModuleType) -> None:
    table.replaced(table.DOCUMENT.read_text(encoding='utf-8'), part.__name__.rpartition('.')[2], '')


def test_words_choose_lines() -> None:
    assert {scenario.line for scenario in campaign.chosen(PARTS, ['sigkill', 'rotation'])} == {
        'SIGKILL: `smelt train`, rotation'
    }
    with pytest.raises(ValueError, match=r'no line has nonsense; there are'):
        campaign.chosen(PARTS, ['nonsense'])


def test_more_than_fifty_kills() -> None:
    kills_planned = sum(scenario.times for scenario in kills.scenarios() if scenario.line.startswith('SIGKILL: `smelt'))
    assert kills_planned >= 50
