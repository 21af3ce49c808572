"""Dispatch and combine in plain XLA."""

import jax
import jax.numpy as jnp


def weighted_rows(rows_SD: jax.Array, place_TK: jax.Array, weight_TK: jax.Array) -> jax.Array:
    """Σ_k weight[t, k] · rows[place[t, k]], summed in float32; a negative place adds nothing, whatever is there."""
    total_TD = jnp.zeros((place_TK.shape[0], rows_SD.shape[1]), jnp.float32)
    # Choice by choice: no array of T · K rows.
    for place_T, weight_T in zip(place_TK.T, weight_TK.T, strict=True):
        row_TD = rows_SD.at[jnp.maximum(place_T, 0)].get(mode='promise_in_bounds').astype(jnp.float32)
        total_TD += jnp.where(place_T[:, None] >= 0, row_TD * weight_T[:, None], 0)
    return total_TD.astype(rows_SD.dtype)
