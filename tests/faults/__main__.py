"""The campaign as a command: `python -m faults`.

Ends with 1 if something was lost, or a line was never disturbed in its phase.
"""

import argparse
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

os.environ['JAX_PLATFORMS'] = 'cpu'  # before anybody imports jax

from faults import campaign, company, damage, disks, kills, signals, table
from faults.world import World

PARTS = {'kills': kills, 'signals': signals, 'disks': disks, 'damage': damage, 'company': company}


def main() -> int:
    """Runs it. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog='launch/faults.sh', description='Disturbs a small run in many ways; compares.'
    )
    parser.add_argument('words', nargs='*', help='only the lines that have all of them; then no table is written')
    parser.add_argument('--part', choices=PARTS, help='this one alone; its table is written')
    parser.add_argument('--short', action='store_true', help='what the tests do; no table is written')
    parser.add_argument('--seed', type=int, default=0, help='another one disturbs at other moments')
    parser.add_argument('--times', type=int, default=0, help='each line so often, instead of as often as it says')
    given = parser.parse_args()
    try:
        campaign.chosen(list(PARTS.values()), given.words)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ends early, with a table of what was done
    folder = Path(tempfile.mkdtemp(prefix='faults-'))
    world, rows = World(folder), []
    for name, part in PARTS.items():
        if given.part not in (None, name):
            continue
        if not (scenarios := campaign.chosen([part], given.words, none=True)):
            continue
        if given.times:
            scenarios = [dataclasses.replace(scenario, times=given.times) for scenario in scenarios]
        found = campaign.run(world, scenarios, given.short, given.seed, lambda line: print(line, flush=True))
        print(table.table(found))
        if not (given.words or given.short):
            table.write(name, found)
        rows += found
    if any(row.lost for row in rows):
        return 1
    shutil.rmtree(folder)
    return int(any(row.missed for row in rows))


if __name__ == '__main__':
    sys.exit(main())
