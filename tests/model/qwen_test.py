"""At one visit the network is Qwen3-MoE: the logits of Hugging Face's model, whose weights are converted here."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from models import TINY, edit, jit, packed, run

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers', '5')  # whose experts are one array a layer

BATCH = packed((24,), (24,), length=24)


def reference(model, seed=0):
    """Hugging Face's model of the same sizes, with random weights far from their small initial values."""
    torch.manual_seed(seed)
    config = transformers.Qwen3MoeConfig(
        vocab_size=model.vocab,
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.attention.heads,
        num_key_value_heads=model.attention.kv_heads,
        head_dim=model.attention.head_dim,
        rope_theta=model.attention.rope_theta,
        num_experts=model.experts.count,
        num_experts_per_tok=model.experts.per_token,
        moe_intermediate_size=model.experts.width,
        norm_topk_prob=model.experts.normalize,
        rms_norm_eps=model.norm_eps,
        tie_word_embeddings=False,
        attn_implementation='eager',
    )
    network = transformers.Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            is_norm = name.endswith('norm.weight')
            weight.normal_(1 if is_norm else 0, 0.2 if is_norm else weight.shape[-1] ** -0.5)
        network.get_input_embeddings().weight.normal_()
    return network


def converted(network, model):
    """Its weights as ours. A matrix of PyTorch maps its last axis to its first; ours the other way round."""
    weights = {name: weight.detach().numpy() for name, weight in network.named_parameters()}

    def layer(index):
        def weight(name):
            return weights[f'model.layers.{index}.{name}']

        gate_up = weight('mlp.experts.gate_up_proj')
        return {
            'attention_norm': {'scale': weight('input_layernorm.weight')},
            'experts_norm': {'scale': weight('post_attention_layernorm.weight')},
            'attention': {
                **{name: weight(f'self_attn.{name}_proj.weight').T for name in 'qkvo'},
                **{f'{name}_norm': {'scale': weight(f'self_attn.{name}_norm.weight')} for name in 'qk'},
            },
            'experts': {
                'router': weight('mlp.gate.weight').T,
                'gate': gate_up[:, : model.experts.width].swapaxes(1, 2),
                'up': gate_up[:, model.experts.width :].swapaxes(1, 2),
                'down': weight('mlp.experts.down_proj').swapaxes(1, 2),
            },
        }

    def stacked(start, stop):
        return {'blocks': stack([layer(index) for index in range(start, stop)])}

    loop = model.loop
    return {
        'embed': weights['model.embed_tokens.weight'],
        'head': weights['lm_head.weight'].T,
        'final_norm': {'scale': weights['model.norm.weight']},
        'prelude': stacked(0, loop.start),
        'recur': stacked(loop.start, loop.start + loop.length),
        'coda': stacked(loop.start + loop.length, model.layers),
    }


def stack(trees):
    first = trees[0]
    if isinstance(first, dict):
        return {key: stack([tree[key] for tree in trees]) for key in first}
    return jnp.asarray(np.stack(trees))


# PyTorch's grouped product wants rows of whole 16 bytes.
BASELINE = edit(TINY, loop=dataclasses.replace(TINY.loop, visits=1), experts__width=12)


@pytest.mark.parametrize(
    'model',
    [
        pytest.param(BASELINE, id='two query heads a key head, top 2, normalised'),
        pytest.param(edit(BASELINE, experts__per_token=1, experts__normalize=False), id='top 1, not normalised'),
        pytest.param(
            edit(BASELINE, experts__count=9, experts__per_token=4, attention__kv_heads=1, attention__rope_theta=1e6),
            id='top 4 of 9, one key head, another rotary base',
        ),
        pytest.param(
            edit(BASELINE, attention__kv_heads=4, attention__head_dim=16, experts__normalize=False, norm_eps=1e-5),
            id='a key head a query head, heads wider than the model, not normalised',
        ),
    ],
)
def test_logits_equal_hugging_faces(model):
    network = reference(model)
    with torch.no_grad():
        expected_BTV = network(torch.from_numpy(BATCH.tokens_BT).long()).logits.numpy()
    actual_BTV, _ = jit(lambda params: run(model, params, BATCH))(converted(network, model))
    error = np.max(np.abs(actual_BTV - expected_BTV))
    print(f'largest difference {error:.1e} of logits with standard deviation {np.std(expected_BTV):.2f}')
    assert error < 1e-4


def test_a_packed_document_has_the_logits_of_hugging_faces_model_on_it_alone():
    network = reference(BASELINE)
    batch = packed((7, 9, 6), (11, 13), length=24)
    actual_BTV, _ = jit(lambda params: run(BASELINE, params, batch))(converted(network, BASELINE))
    for row, segment in [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]:
        inside_T = batch.segment_ids_BT[row] == segment
        with torch.no_grad():
            expected_TV = network(torch.from_numpy(batch.tokens_BT[row : row + 1, inside_T]).long()).logits[0].numpy()
        assert np.max(np.abs(actual_BTV[row, inside_T] - expected_TV)) < 1e-4
