"""Records as tables for a terminal. Reads records alone, no jax."""

from typing import Any

from rich.table import Table


def record_tables(record: dict[str, Any]) -> list[Table]:
    """One table a grouping of a held-out record."""
    title = f'{record["name"]}, step {record["step"]}, {record["visits"]} visit(s): held-out loss'
    overall = _table(title, {'all': record})
    return [overall, *(_table(f'by {by}', record[f'by_{by}']) for by in ('domain', 'source', 'length'))]


def _table(title: str, entries: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify='left')
    table.add_column('')
    for column in ('nats/token', 'bits/byte', 'tokens', 'bytes'):
        table.add_column(column, justify='right')
    for name, entry in entries.items():
        counts = (f'{entry["targets"]:,}', f'{entry["bytes"]:,}')
        table.add_row(name, number(entry['loss']), number(entry['bits_per_byte']), *counts)
    return table


def number(value: float | None, digits: int = 4) -> str:
    """A number, or a dash where there was nothing to count."""
    return '–' if value is None else f'{value:,.{digits}f}'
