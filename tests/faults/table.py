"""The table of docs/reliability.md, from the rows of a campaign."""

import platform
import re
from collections.abc import Sequence

from runs_helper import ROOT

from faults.campaign import Row

DOCUMENT = ROOT / 'docs' / 'reliability.md'
BEGIN, END = '<!-- written by launch/faults.sh -->', '<!-- end -->'
HEAD = (
    '| disturbance | times | in the phase | it was doing | said so | runs | equal | LOST | slowest end, s |',
    '|---|---|---|---|---|---|---|---|---|',
)


def table(rows: Sequence[Row]) -> str:
    """One line a row, their sum, and below what was lost."""
    lines = [*HEAD, *(_line(row) for row in rows if not row.skipped)]
    done = [row for row in rows if not row.skipped]
    total = sum(row.seen.doing.total() for row in done)
    sums = [sum(getattr(row.seen, key) for row in done) for key in ('aimed', 'said')]
    runs, equal, lost = (
        sum(row.runs for row in done),
        sum(row.equal for row in done),
        sum(len(row.lost) for row in done),
    )
    lines.append(f'| **all** | {total} | {sums[0]} | | {sums[1]} | {runs} | {equal} | {lost} | |')
    for row in rows:
        if row.skipped:
            lines.append(f'\nNot done here: {row.line}: {row.skipped}.')
        lines += [f'\nLOST: {row.line}: {what}' for what in row.lost]
    minutes = sum(row.seconds for row in rows) / 60
    return '\n'.join(
        [*lines, f'\nIn {minutes:.0f} minutes on {platform.machine()}, Python {platform.python_version()}.']
    )


def write(rows: Sequence[Row]) -> None:
    """Puts the table between its marks; the rest of the document stays."""
    text = DOCUMENT.read_text(encoding='utf-8')
    DOCUMENT.write_text(replaced(text, table(rows)), encoding='utf-8')


def replaced(text: str, new: str) -> str:
    """`text` with `new` between the marks. Raises ValueError if they are not there."""
    pattern = re.compile(f'{re.escape(BEGIN)}.*{re.escape(END)}', re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f'{DOCUMENT} has no {BEGIN} … {END}; put these lines where the table shall be')
    return pattern.sub(lambda _: f'{BEGIN}\n\n{new}\n\n{END}', text)


def _line(row: Row) -> str:
    doing = ', '.join(f'{name} {count}' for name, count in row.seen.doing.most_common())
    slowest = f'{row.seen.slowest:.1f}' if row.seen.slowest else ''
    said = row.seen.said or ''
    return (
        f'| {row.line} | {row.seen.doing.total()} | {row.seen.aimed} | {doing} | {said} | {row.runs} | {row.equal} | '
        f'{len(row.lost) or 0} | {slowest} |'
    )
