"""Collectives as compiled programs write them: each counts once, wherever its parts stand."""

import pytest

from smelt_jax.parallel.collectives import collective_bytes
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices

# A TPU's all-gather that goes on beside a loop which the data cut: it starts before, ends behind, and is in it too.
CHAINED = """\
%start (p.1: f32[4,8]) -> f32[8,8] {{
  %p.1 = f32[4,8] parameter(0)
  ROOT %g.1 = f32[8,8] all-gather(%p.1), channel_id=1, replica_groups=[4,2]<=[8], dimensions={{0}}{chain}
}}

%part (p.2: f32[4,8]) -> f32[8,8] {{
  %p.2 = f32[4,8] parameter(0)
  ROOT %g.2 = f32[8,8] all-gather(%p.2), channel_id=1, replica_groups=[4,2]<=[8], dimensions={{0}}{chain}
}}

%body (p.3: f32[4,8]) -> f32[8,8] {{
  %p.3 = f32[4,8] parameter(0)
  ROOT %f.3 = f32[8,8] fusion(%p.3), kind=kCustom, calls=%part
}}

%condition (p.4: f32[4,8]) -> pred[] {{
  %p.4 = f32[4,8] parameter(0)
  %a = s32[] custom-call(%p.4)
  ROOT %less = pred[] compare(%a, %a), direction=LT
}}

ENTRY %main (p: f32[4,8]) -> f32[8,8] {{
  %p = f32[4,8] parameter(0)
  %first = f32[8,8] fusion(%p), kind=kCustom, calls=%start
  ROOT %loop = f32[8,8] while(%p), condition=%condition, body=%body
}}
"""


def test_parts_of_one_chain_count_once() -> None:
    mesh = Devices.of(MeshConfig(2, 2, 2)).mesh
    text = CHAINED.format(chain=', frontend_attributes={chain_id="3"}')
    assert collective_bytes(text, mesh) == {('all-gather', ('expert',)): 8 * 8 * 4 / 2}


def test_without_a_chain_the_loop_stands_in_the_way() -> None:
    with pytest.raises(ValueError, match='number of turns is not known'):
        collective_bytes(CHAINED.format(chain=''), Devices.of(MeshConfig(2, 2, 2)).mesh)
