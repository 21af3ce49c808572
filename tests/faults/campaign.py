"""Runs scenarios, and counts by line of the table."""

import dataclasses
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from faults.looks import Lost
from faults.scenario import Scenario, Seen, Skip
from faults.world import World

TRIES = 3


@dataclasses.dataclass
class Row:
    """A line of the table: the scenarios of one line, added up.

    Attributes:
      line: of the table.
      seen: of all of them.
      runs: how many were disturbed.
      equal: how many of these were as if nobody had done anything, in the end.
      lost: of the others, what was wrong.
      skipped: why it could not be done here, or ''.
      seconds: all together.
    """

    line: str
    seen: Seen = dataclasses.field(default_factory=Seen)
    runs: int = 0
    equal: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    skipped: str = ''
    seconds: float = 0.0

    @property
    def missed(self) -> bool:
        """Whether nothing came in the phase that was meant: then the line has shown nothing."""
        return not (self.skipped or self.lost or self.seen.aimed)


def run(
    world: World,
    scenarios: Iterable[Scenario],
    short: bool = False,
    seed: int = 0,
    say: Callable[[str], object] = print,
) -> list[Row]:
    """Runs each scenario as often as it says, each time in a place of its own. A place where something was lost is kept.

    SIGINT ends it early; the lines that were not reached say so.
    """
    rows: dict[str, Row] = {}
    stopped = False
    for scenario in scenarios:
        times = scenario.short if short else scenario.times
        row = rows.setdefault(scenario.line, Row(scenario.line)) if times else Row('')
        for _ in range(times):
            if stopped or row.skipped:
                row.skipped = row.skipped or ('' if row.runs else 'the campaign was stopped before')
                break
            try:
                say(_tried(world, scenario, seed, row))
            except KeyboardInterrupt:
                stopped = True
    return list(rows.values())


def _tried(world: World, scenario: Scenario, seed: int, row: Row) -> str:
    """Runs it once. If it came too late, or in another phase, it is tried again. Returns what to say."""
    for _ in range(TRIES):
        outcome, seen = _once(world, scenario, random.Random(f'{seed}/{scenario.line}/{row.runs}'), row)
        if outcome != 'equal' or seen.aimed:
            break
    return f'{scenario.line}: {", ".join(seen.doing) or "too late"}: {outcome}'


def _once(world: World, scenario: Scenario, chance: random.Random, row: Row) -> tuple[str, Seen]:
    """One more run in the row: what came of it in words, and what was seen."""
    began, place, seen, outcome = time.monotonic(), world.place(), Seen(), 'equal'
    try:
        with place.after:
            seen = scenario.act(place, chance)
            for verb in scenario.equal:
                place.compare(verb)
        row.equal += 1
    except Skip as reason:
        outcome = row.skipped = str(reason)
    except Lost as error:
        outcome = f'LOST: {error} (in {place.folder})'
        row.lost.append(str(error))
    except Exception:
        outcome = f'LOST: the campaign failed (in {place.folder})'
        row.lost.append(traceback.format_exc())
    row.runs += not row.skipped
    row.seen.join(seen)
    row.seconds += time.monotonic() - began
    if not outcome.startswith('LOST'):
        shutil.rmtree(place.folder, ignore_errors=True)
    return outcome, seen


def chosen(parts: Sequence[ModuleType], words: Sequence[str], none: bool = False) -> list[Scenario]:
    """The scenarios of all parts that have all the words in their line, or in the part's name. Raises ValueError, listing
    the lines, if there are none and `none` does not allow that."""
    named = [(f'{part.__name__}: {scenario.line}', scenario) for part in parts for scenario in part.scenarios()]
    found = [scenario for name, scenario in named if all(word.lower() in name.lower() for word in words)]
    if not (found or none):
        known = '\n  '.join(sorted({name for name, _ in named}))
        raise ValueError(f'no line has {" and ".join(words)}; there are\n  {known}')
    return found
