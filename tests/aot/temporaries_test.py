"""The largest arrays of a program, by name: what they are in its text, and that a quadratic one is seen."""

import jax
import jax.numpy as jnp

from smelt_jax.aot.temporaries import largest

# One of each kind, as the compiler for TPUs writes them.
TEXT = """\
HloModule jit_step, is_scheduled=true

%fused (p.1: f32[8,100]) -> f32[8,100] {
  %p.1 = f32[8,100]{1,0:T(8,128)} parameter(0)
  %hidden = f32[800,100]{1,0:T(8,128)} broadcast(%p.1), dimensions={}
  ROOT %r.1 = f32[8,100]{1,0:T(8,128)} negate(%p.1)
}

%body (p.2: (s32[], bf16[16,4,100])) -> (s32[], bf16[16,4,100]) {
  %p.2 = (s32[], bf16[16,4,100]{2,1,0:T(4,128)(2,1)}) parameter(0)
  %g.2 = bf16[16,4,100]{2,1,0:T(4,128)(2,1)} get-tuple-element(%p.2), index=1
  %scratch = f32[900,900]{1,0:T(8,128)S(1)} broadcast(%g.2), dimensions={}
  %inner = f32[16,9]{0,1:T(8,128)} fusion(%g.2), calls=%fused, metadata={op_name="PASS/blocks/dot_general;jit(step)/other/add"}
  ROOT %t.2 = (s32[], bf16[16,4,100]) tuple(%g.2, %g.2)
}

%cond (p.3: (s32[], bf16[16,4,100])) -> pred[] {
  %p.3 = (s32[], bf16[16,4,100]{2,1,0}) parameter(0)
  ROOT %c.3 = pred[] constant(true)
}

ENTRY %main (a: f32[8,100]) -> (f32[8,100], s32[]) {
  %a = f32[8,100]{1,0:T(8,128)} parameter(0)
  %start = bf16[16,4,100]{2,1,0:T(4,128)(2,1)} broadcast(%a), dimensions={}
  %in = (s32[], bf16[16,4,100]{2,1,0:T(4,128)(2,1)}) tuple(%a, %start)
  %loop = (s32[], bf16[16,4,100]) while(%in), condition=%cond, body=%body, metadata={op_name="jit(step)/jvp(Net)/blocks/while"}
  %g = bf16[16,4,100]{2,1,0:T(4,128)(2,1)} get-tuple-element(%loop), index=1
  %result = f32[8,100]{1,0:T(8,128)} fusion(%a), kind=kLoop, calls=%fused
  ROOT %out = (f32[8,100]{1,0:T(8,128)}, s32[]) tuple(%result, %g)
}
""".replace('PASS', 'jit(step)/transpose(jvp(Net))/while/body/checkpoint/rematted_computation')


def test_what_lies_in_memory_is_listed_with_its_padding() -> None:
    first, second = largest(TEXT)
    # 100 numbers lie in rows of 128; what makes it has no name, but is for a loop that has.
    assert (first.shape, first.bytes, first.makers) == ('bf16[16,4,100]', 16 * 4 * 128 * 2, 1)
    assert first.name == 'start for forward/blocks'
    # The first axis is the last one in memory: 9 rows become 16, 16 numbers 128.
    assert (second.shape, second.bytes, second.name) == ('f32[16,9]', 16 * 128 * 4, 'backward/again/blocks/dot_general')


def test_what_a_fusion_keeps_to_itself_scratch_arguments_and_results_are_not() -> None:
    assert not {'f32[800,100]', 'f32[900,900]', 'f32[8,100]'} & {each.shape for each in largest(TEXT)}


def test_a_quadratic_array_is_seen_with_its_name() -> None:
    def naive(q_TH, k_TH):
        with jax.named_scope('scores'):
            weights_TT = jax.nn.softmax(q_TH @ k_TH.T)
        return weights_TT @ k_TH

    rows = jax.ShapeDtypeStruct((300, 8), jnp.float32)
    text = jax.jit(naive).lower(rows, rows).compile().as_text()
    first = largest(text, most=1)[0]
    assert (first.shape, first.bytes) == ('f32[300,300]', 300 * 300 * 4)
    assert first.name.startswith('scores/')
