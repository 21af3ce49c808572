"""The table of docs/reliability.md, from the rows of a campaign."""

import dataclasses
import platform
import re
from collections.abc import Sequence

from runs_helper import ROOT

from faults.campaign import Row

DOCUMENT = ROOT / 'docs' / 'reliability.md'
HEAD = (
    '| disturbance | times | in the phase | it was doing | said so | runs | equal | LOST | slowest end, s |',
    '|---|---|---|---|---|---|---|---|---|',
)


def table(rows: Sequence[Row]) -> str:
    """One line a row, their sum, and below what was lost."""
    total = Row('**all**')
    for row in rows:
        total.seen.join(dataclasses.replace(row.seen, slowest=0.0))
        total.runs, total.equal, total.lost = total.runs + row.runs, total.equal + row.equal, total.lost + row.lost
        total.seconds += row.seconds
    lines = [*HEAD, *(_line(row) for row in rows if not row.skipped), _line(total, doing='')]
    for row in rows:
        if row.skipped:
            lines.append(f'\nNot done here: {row.line}: {row.skipped}.')
        if row.missed:
            lines.append(f'\nNever in its phase: {row.line}.')
        lines += [f'\nLOST: {row.line}: {what}' for what in row.lost]
    where = f'{platform.machine()}, Python {platform.python_version()}'
    return '\n'.join([*lines, f'\nIn {total.seconds / 60:.0f} minutes on {where}.'])


def write(part: str, rows: Sequence[Row]) -> None:
    """Puts the table of a part between its marks; the rest of the document stays."""
    text = DOCUMENT.read_text(encoding='utf-8')
    DOCUMENT.write_text(replaced(text, part, table(rows)), encoding='utf-8')


def replaced(text: str, part: str, new: str) -> str:
    """`text` with `new` between the part's marks. Raises ValueError if they are not there."""
    begin, end = f'<!-- {part}: written by launch/faults.sh -->', f'<!-- end of {part} -->'
    pattern = re.compile(f'{re.escape(begin)}.*{re.escape(end)}', re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f'{DOCUMENT} has no {begin} … {end}; put these lines where the table shall be')
    return pattern.sub(lambda _: f'{begin}\n\n{new}\n\n{end}', text)


def _line(row: Row, doing: str | None = None) -> str:
    seen = row.seen
    doing = ', '.join(f'{name} {count}' for name, count in seen.doing.most_common()) if doing is None else doing
    cells = [row.line, seen.doing.total(), seen.aimed, doing, seen.said or '', row.runs, row.equal, len(row.lost)]
    return f'| {" | ".join(map(str, cells))} | {f"{seen.slowest:.1f}" if seen.slowest else ""} |'
