"""The counts are true of the network that is built: its parameters, its matrix products, and XLA's own count of it.

The sparse experts work through blocks of sorted tokens in a loop of unknown length, which no static count can follow. So
here every expert is active (E = K) and the reference implementation, which runs every expert on every token, stands in:
with E = K that is the same work.

XLA counts more than the budget, all of it of lower order in the width D, and named where it is bounded: a few FLOPs an
element for norms, softmax, SiLU, rotations and residuals. And the attention's backward pass computes the scores Q·Kᵀ once
again instead of keeping them: a sixth of `attended` on top, which the budget leaves out as it does all rematerialisation.
XLA's count goes once through the body of a scan, however often that runs: so it sees one layer, and the products of a
looped model are counted in its jaxpr, where scans have a length.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

from experiments import smelt
from pallas_kernels import expert_ffn
from smelt_jax.budget.accounting import budget_of
from smelt_jax.config import resolve
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, LoopConfig, ModelConfig
from smelt_jax.model.share import Share
from smelt_jax.model.transformer import Transformer, logits_of

ROWS, LENGTH = 2, 128  # one block of queries: the scores of a row are a whole square, so T̄ = LENGTH

SMALL = ModelConfig(
    vocab=40,
    width=24,
    layers=5,
    loop=LoopConfig(start=1, length=2, visits=3),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=6),
    experts=ExpertsConfig(count=5, per_token=3, width=10),
)
PART = {
    **dict.fromkeys(('q', 'k', 'v', 'o'), 'attention'),
    **dict.fromkeys(('gate', 'up', 'down'), 'experts'),
    'router': 'router',
    'scale': 'norms',
    'embed': 'embedding',
    'head': 'head',
}


def ints(rows=ROWS, length=LENGTH):
    return jax.ShapeDtypeStruct((rows, length), jnp.int32)


def leaves_of(model):
    """(path, size) of every parameter, from the shapes alone."""
    shapes = jax.eval_shape(Transformer(model).init, jax.random.key(0), *3 * [ints(1, 2)])['params']
    return [(tuple(key.key for key in path), math.prod(leaf.shape)) for path, leaf in jax.tree.leaves_with_path(shapes)]


@pytest.mark.parametrize(
    'model',
    [
        SMALL,
        dataclasses.replace(SMALL, attention=AttentionConfig(4, 4, 6, qk_norm=False)),
        dataclasses.replace(SMALL, loop=LoopConfig(start=0, length=5, visits=2)),
        dataclasses.replace(SMALL, loop=LoopConfig()),
        *(resolve(smelt.get_config(f'{cell}-{arm}')).model for cell in smelt.CELLS for arm in smelt.ARMS),
    ],
    ids=lambda model: f'{model.width}-{model.loop.start}-{model.loop.length}',
)
def test_every_leaf_of_the_network_is_counted_once_and_in_its_part(model):
    budget = budget_of(model, 100)
    found = dict.fromkeys(PART.values(), 0)
    looped = dict.fromkeys(PART.values(), 0)
    for path, size in leaves_of(model):
        part = PART[path[-1]]
        found[part] += size
        if path[0] == 'recur':
            looped[part] += size * model.experts.per_token // model.experts.count if part == 'experts' else size
    assert found == dataclasses.asdict(budget.stored)
    assert looped == dataclasses.asdict(budget.looped)


def every_expert_runs(x_TD, weights_TK, experts_TK, weights):
    return expert_ffn(x_TD, weights_TK, experts_TK, weights, implementation='reference'), jnp.zeros(())


def loss_of(model):
    """A function of parameters and rows whose gradient needs all of the network, and the shapes it takes."""
    net = Transformer(model, Share(expert_ffn=every_expert_runs))

    def loss(variables, tokens, segment_ids, positions):
        output = net.apply(variables, tokens, segment_ids, positions)
        return jnp.sum(jnp.square(logits_of(variables['params'], output.hidden_BTD)))

    variables = jax.eval_shape(net.init, jax.random.key(0), *3 * [ints()])
    return loss, (variables, *3 * [ints()])


def test_xla_counts_the_same_flops():
    model = ModelConfig(
        vocab=512,
        width=512,
        layers=1,
        loop=LoopConfig(),
        attention=AttentionConfig(heads=8, kv_heads=4, head_dim=64),
        experts=ExpertsConfig(count=2, per_token=2, width=1024),
    )
    budget = budget_of(model, LENGTH)
    loss, shapes = loss_of(model)

    def by_xla(function):
        cost = jax.jit(function).lower(*shapes).compile().cost_analysis()
        assert cost is not None
        return cost['flops'] / (ROWS * LENGTH)

    assert 1 < by_xla(loss) / budget.inference_flops.total < 1.01
    scores_again = budget.train_flops.attended / 6
    assert 1 < by_xla(jax.value_and_grad(loss)) / (budget.train_flops.total + scores_again) < 1.01


@pytest.mark.parametrize('visits', [1, 2, 3])
def test_the_products_of_a_looped_model_are_exactly_those_counted(visits):
    all_active = dataclasses.replace(SMALL.experts, count=SMALL.experts.per_token)
    loop = dataclasses.replace(SMALL.loop, visits=visits)
    model = dataclasses.replace(SMALL, experts=all_active, loop=loop)
    budget = budget_of(model, LENGTH)
    loss, shapes = loss_of(model)
    tokens = ROWS * LENGTH
    assert products(jax.make_jaxpr(loss)(*shapes).jaxpr) == budget.inference_flops.total * tokens
    scores_again = budget.train_flops.attended / 6
    trained = products(jax.make_jaxpr(jax.value_and_grad(loss))(*shapes).jaxpr)
    assert trained == (budget.train_flops.total + scores_again) * tokens


def products(jaxpr):
    """FLOPs of the matrix products of a jaxpr; the body of a scan counts as often as it runs."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == 'dot_general':
            (contracted, _), _ = equation.params['dimension_numbers']
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        assert equation.primitive.name != 'while', 'a loop of unknown length'
        inner = sum(products(sub) for sub in jaxprs_in_params(equation.params))
        total += inner * equation.params.get('length', 1) if equation.primitive.name == 'scan' else inner
    return total
