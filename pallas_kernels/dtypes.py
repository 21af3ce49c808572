"""What Pallas kernels compute with."""

import jax.numpy as jnp

DTYPES = ('float32', 'bfloat16')


def check_dtype(hardware: str, dtype: jnp.dtype) -> None:
    """Raises ValueError for a dtype that the kernels of `hardware` do not take."""
    if jnp.dtype(dtype).name not in DTYPES:
        raise ValueError(f'{hardware} kernels take {" and ".join(DTYPES)}, not {jnp.dtype(dtype).name}')
