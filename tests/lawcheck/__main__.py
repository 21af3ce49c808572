"""All of it as a command: `python -m lawcheck`. Ends with 1 if a figure is not as it should be."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lawcheck import synthetic
from lawcheck.checks import TABLES, Check
from lawcheck.public import PUBLIC
from smelt_jax import screen

DOCUMENT = Path(__file__).parents[2] / 'docs' / 'laws.md'
HEAD = ('what', 'figure', 'wanted', 'found', 'allowed', 'met')


def known_truths() -> Iterator[list[Check]]:
    """Recovery, coverage and held-out ranking."""
    yield [synthetic.recovery(name) for name in synthetic.truths()]
    for kind in ('points', 'cells'):
        yield synthetic.coverage(200, 400, kind)
    for kind in ('dense', 'moe'):
        yield synthetic.ranking(kind)


def main() -> int:
    """Checks, prints, and writes the table. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog='launch/laws.sh', description='Laws beside published figures and known truths.'
    )
    parser.add_argument('--short', action='store_true', help='public tables alone; nothing is written')
    short = parser.parse_args().short
    if not (TABLES / 'published_fits.json').exists():
        parser.error(f'no tables at {TABLES}; SMELT_TEST_LAWS says where they are')
    checks: list[Check] = []
    for make in PUBLIC.values():
        checks += make()
    for part in () if short else known_truths():
        checks += part
    table = Table(
        title=f'{sum(check.met for check in checks)} of {len(checks)} figures as they should be', title_justify='left'
    )
    for name in HEAD:
        table.add_column(name, justify='right' if name in ('wanted', 'found', 'allowed') else 'left')
    for check in checks:
        table.add_row(*check.row())
    screen.show(Console(), [table])
    if not short:
        text = screen.markdown(table) + f'\nIn {time.process_time() / 60:.0f} minutes of processor time.'
        DOCUMENT.write_text(screen.place_in(DOCUMENT.read_text(), 'launch/laws.sh', text, str(DOCUMENT)))
    return int(not all(check.met for check in checks))


if __name__ == '__main__':
    sys.exit(main())
