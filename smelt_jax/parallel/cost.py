"""What an update costs in communication, by formula. docs/scale.md says the same in words."""

from smelt_jax.budget.parts import parameters_of
from smelt_jax.model.config import ModelConfig

FLOAT32 = 4


def update_bytes(
    model: ModelConfig,
    replica: int,
    fsdp: int,
    expert: int,
    tokens: int,
    exchange: str,
    accumulate: int = 1,
    lanes: int = 1,
    chunked: bool = False,
) -> dict[str, float]:
    """Bytes that one device receives in an update, by axis.

    Args:
      tokens: inputs of a microbatch on one device, padding included.
      exchange: `gather` or `ragged`; of `ragged` what is sent when every choice is on another device counts (n − 1)/n.
      lanes: numbers that a row sent by `ragged` is padded to a multiple of; 256 in bfloat16 on TPUs.
      chunked: whether tokens are exchanged some at a time (`mesh.chunk_tokens`).

    Returns:
      `fsdp`: each executed layer's parameters, gathered for the forward and again for the backward pass in the model's
      dtype, and their gradients scattered in float32; embedding and head gathered once.
      `expert`: tokens to experts and back, forward and backward, and forward once more where it is computed again.
      `sum`: gradients added up at the end over the devices that have the same parameters.
    """
    item = 2 if model.dtype == 'bfloat16' else FLOAT32
    layer = _layer(model, expert)
    executed, away = model.executed_layers, {n: (n - 1) / n for n in (replica, fsdp, expert)}
    outer = 2 * model.vocab * model.width
    gathered = executed * (
        layer['router'] * 3 * FLOAT32 + (layer['attention'] + layer['experts']) * (2 * item + FLOAT32)
    )
    gathered += outer * (item + FLOAT32)
    wide = tokens * model.width
    choices = tokens * model.experts.per_token
    if (
        exchange == 'gather'
    ):  # x, choices and their weights of all; y in float32, and back the gradients of x, y and weights
        forward = (item + FLOAT32) * wide + 2 * FLOAT32 * choices
        backward = (item + FLOAT32) * wide + FLOAT32 * choices
        again = item * wide + 2 * FLOAT32 * choices  # y is not needed again
        forward, backward, again = forward * expert, backward * expert, again * expert
    else:
        row = -(-model.width // lanes) * lanes
        forward = backward = again = 2 * item * tokens * row * model.experts.per_token
    sent = executed * (forward + backward + again * (chunked or model.remat != 'none')) * away[expert]
    stacked = model.layers
    alike = (stacked * (layer['attention'] + layer['router']) + outer) / fsdp
    copies = replica * expert
    summed = 2 * FLOAT32 * (alike * (copies - 1) / copies + stacked * layer['experts'] / fsdp * away[replica])
    return {
        'fsdp': accumulate * gathered * away[fsdp],
        'expert': accumulate * sent if expert > 1 else 0.0,
        'sum': summed if replica * expert > 1 else 0.0,
    }


def _layer(model: ModelConfig, expert: int) -> dict[str, float]:
    """Parameters of a layer on the devices of one expert group."""
    stored = parameters_of(model)[0]
    return {
        'attention': stored.attention / model.layers,
        'router': stored.router / model.layers,
        'experts': stored.experts / model.layers / expert,
    }
