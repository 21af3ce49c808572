"""smelt_jax: compute-matched looped mixture-of-experts Transformers in JAX."""

import typing

from smelt_jax.version import __version__ as __version__

if typing.TYPE_CHECKING:
    from smelt_jax.train.load import load as load


def __getattr__(name: str) -> typing.Any:
    """`smelt_jax.load`, imported when asked for: half of the package works without jax."""
    if name != 'load':
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from smelt_jax.train.load import load

    return load
