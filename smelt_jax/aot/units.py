"""Bytes for people."""

GIB = 2**30
_UNITS = ('B', 'KiB', 'MiB', 'GiB', 'TiB')


def size(count: float) -> str:
    """Bytes in the unit that leaves at most four digits before the point: `1.50 GiB`."""
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f'{count:.0f} B' if unit == 'B' else f'{count:.2f} {unit}'
