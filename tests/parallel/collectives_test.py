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


@pytest.mark.parametrize(
    ('types', 'kind', 'received'),
    [
        ('f32[8,8]{1,0} all-gather(%p)', 'all-gather', 128),
        ('(f32[4,8]{1,0:T(8,128)(2,1)}, f32[8,8]{1,0:T(8,128)}) all-gather-start(%p)', 'all-gather', 128),
        ('(f32[4,8], f32[8,8], u32[], u32[]) all-gather-start(%p)', 'all-gather', 128),
        (
            '((f32[4,8], f32[2]), (f32[8,8]{1,0:T(8,128)}, /*index=5*/f32[4])) all-gather-start(%p, %p)',
            'all-gather',
            136,
        ),
        ('((f32[8,8], f32[4]), (f32[4,8], f32[2])) reduce-scatter-start(%p, %p)', 'reduce-scatter', 136),
        ('(f32[8,8], f32[4]) all-reduce-start(%p, %p)', 'all-reduce', 272),
        ('((f32[2,4,8], f32[4,4,8], s64[2]), f32[4,4,8]) ragged-all-to-all-start(%p, %p)', 'ragged-all-to-all', 128),
    ],
)
def test_what_is_split_into_a_start_and_an_end_counts_its_result(types: str, kind: str, received: float) -> None:
    text = f"""\
ENTRY %main (p: f32[2,4,8]) -> f32[8,8] {{
  %p = f32[2,4,8] parameter(0)
  %start = {types}, channel_id=2, replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}
}}
"""
    assert collective_bytes(text, Devices.of(MeshConfig(2, 2, 2)).mesh) == {(kind, ('expert',)): received}
