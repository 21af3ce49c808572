"""smelt_jax: compute-matched looped mixture-of-experts Transformers in JAX."""

from smelt_jax.version import __version__ as __version__
