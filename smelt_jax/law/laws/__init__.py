"""One law a file. A file that defines `LAWS` is found by itself."""

import importlib
import pkgutil

from smelt_jax.law.law import Law


def laws() -> dict[str, Law]:
    """All laws by name."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for law in getattr(importlib.import_module(f'{__name__}.{module.name}'), 'LAWS', ()):
            found[law.name] = law
    return found


def law_named(name: str) -> Law:
    """The law called `name`. Raises ValueError, listing all."""
    known = laws()
    if name not in known:
        raise ValueError(f'there is no law {name!r}; there are {", ".join(sorted(known))}')
    return known[name]
