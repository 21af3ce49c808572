"""Laws of looped models: each map of visits on the dense law and on the law of mixtures of experts."""

from smelt_jax.law.laws import chinchilla, moe
from smelt_jax.law.maps import MAPS, looped

LAWS = tuple(
    looped(law, by, f'looped-{by.name}-{kind}')
    for kind, law in (('dense', chinchilla.LAWS[0]), ('moe', moe.MOE))
    for by in MAPS
)
