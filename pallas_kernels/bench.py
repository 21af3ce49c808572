"""Checks and times the kernels on this machine's accelerator, at the widths of 200M and 1.6B models, in bfloat16.

    python -m pallas_kernels.bench [--tokens=8192] [--only=200m] [--seconds=200]

First every kernel against the reference, values and gradients, at odd and at real widths: a wrong one ends the run with 1.
Then `expert_ffn`, forward and forward with backward, beside `jax.lax.ragged_dot` with XLA's gather and scatter, and on Hopper
beside JAX's Pallas kernels for ragged products; in TFLOP/s, and as a share of the rate of a square product measured in the same
run. FLOPs are those of the three products (and of their gradients): what is computed again counts for nothing.

Under four minutes on one H200. On a CPU it is a try at small widths with interpreted kernels; its times mean nothing.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import pallas_kernels
from pallas_kernels import ExpertWeights, best, route, settings
from pallas_kernels.peers import PEERS

# (experts, choices, D, F): baseline and looped, at a sparsity of 85%.
MODELS = {
    '200m': (64, 8, 1280, 432),
    '200m-looped': (96, 8, 1056, 352),
    '1.6b': (64, 8, 2304, 768),
    '1.6b-looped': (96, 8, 1848, 640),
}
SMOKE = {'smoke': (4, 2, 96, 40)}
ODD = (11, 3, 96, 40)
ALLOWED = 0.01  # of the largest entry; inputs and hidden numbers are bfloat16


class Setup(NamedTuple):
    """What runs here."""

    implementation: str
    interpret: bool
    models: dict[str, tuple[int, int, int, int]]
    tokens: int


class Case(NamedTuple):
    """Inputs of one shape."""

    x_TD: jax.Array
    weights_TK: jax.Array
    experts_TK: jax.Array
    weights: ExpertWeights
    dy_TD: jax.Array


def made_up(tokens: int, shape: tuple[int, int, int, int], dtype: Any = jnp.bfloat16) -> Case:
    """Random inputs; some experts are chosen much more often than others."""
    experts, choices, width, ffn_width = shape
    keys = iter(jax.random.split(jax.random.key(0), 7))

    def normal(*shape: int) -> jax.Array:
        return (jax.random.normal(next(keys), shape) / shape[-2] ** 0.5).astype(dtype)

    logits_TE = jax.random.normal(next(keys), (tokens, experts)) + jnp.linspace(0, 1, experts)
    weights_TK, experts_TK = jax.lax.top_k(jax.nn.softmax(logits_TE), choices)
    weights = ExpertWeights(
        normal(experts, width, ffn_width), normal(experts, width, ffn_width), normal(experts, ffn_width, width)
    )
    return Case(5 * tokens**0.5 * normal(tokens, width), weights_TK, experts_TK, weights, normal(tokens, width))


def kernels(case: Case, **more: Any) -> Iterator[tuple[str, Callable, tuple]]:
    """(name, function of the choices and the primals, primals) of every kernel; the gradient is taken of the primals."""
    experts, choices = case.weights.gate_EDF.shape[0], case.experts_TK.shape[1]
    x_SD = case.x_TD[route(case.experts_TK, experts).order_S // choices]

    def dispatch(experts_TK, x_TD):
        return pallas_kernels.dispatch(x_TD, route(experts_TK, experts), **more)

    def combine(experts_TK, y_SD, weights_TK):
        return pallas_kernels.combine(y_SD, weights_TK, route(experts_TK, experts), **more)

    def grouped_matmul(experts_TK, x_SD, weights_EDF):
        return pallas_kernels.grouped_matmul(x_SD, weights_EDF, route(experts_TK, experts).ends_E, **more)

    def expert_ffn(experts_TK, x_TD, weights_TK, weights):
        return pallas_kernels.expert_ffn(x_TD, weights_TK, experts_TK, weights, **more)

    yield 'expert_ffn', expert_ffn, (case.x_TD, case.weights_TK, case.weights)
    yield 'dispatch', dispatch, (case.x_TD,)
    yield 'combine', combine, (x_SD, case.weights_TK)
    yield 'grouped_matmul', grouped_matmul, (x_SD, case.weights.gate_EDF)


def gradients(function: Callable) -> Callable:
    """(choices, primals, cotangent) → (result, gradients), compiled. Choices are an argument, or else they would be sorted
    by the compiler."""

    @jax.jit
    def both(experts_TK: jax.Array, primals: tuple, dy: jax.Array | None) -> Any:
        y, pull = jax.vjp(functools.partial(function, experts_TK), *primals)
        return y, pull(jnp.cos(jnp.arange(y.size).reshape(y.shape)).astype(y.dtype) if dy is None else dy)

    return both


def error_of(actual: Any, expected: Any) -> float:
    """The largest difference of any leaf, as a share of the leaf's largest entry."""

    def leaf(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.where(jnp.all(jnp.isfinite(a)), jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)), jnp.inf)

    return max(float(error) for error in jax.tree.leaves(jax.tree.map(leaf, actual, expected)))


def check(setup: Setup) -> bool:
    """Prints a line for every kernel and width; true if all are right."""
    right = True
    for name, shape in {'odd': ODD, **setup.models}.items():
        case = made_up(130 if name == 'odd' else min(setup.tokens, 1024), shape)
        exact = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a, case)
        ours = [*kernels(case, implementation=setup.implementation, interpret=setup.interpret)]
        plainly = [*kernels(exact, implementation='reference')]
        # Every kernel at two widths, the whole FFN at all: compiling takes longer than running.
        count = len(ours) if name in ('odd', 'smoke', '1.6b-looped') else 1
        for (kernel, function, primals), (_, plain, exact_primals) in zip(ours[:count], plainly, strict=False):
            with jax.default_matmul_precision('highest'):
                expected = gradients(plain)(case.experts_TK, exact_primals, None)
            error = error_of(gradients(function)(case.experts_TK, primals, None), expected)
            right &= error <= ALLOWED
            print(f'{"ok" if error <= ALLOWED else "WRONG":6}{kernel:16}{name:14}error {error:.4f}', flush=True)
    return right


def seconds_of(function: Callable, *arguments: Any, budget: float = 0.5) -> float:
    """The median of several runs of one call, after a first one that compiles."""
    jax.block_until_ready(function(*arguments))
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    calls = max(1, min(20, int(budget / 5 / max(time.perf_counter() - start, 1e-6))))
    found = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            result = function(*arguments)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - start) / calls)
    return statistics.median(found)


def matmul_rate(size: int) -> float:
    """FLOP/s of a square product in bfloat16."""
    matrix = jnp.ones((size, size), jnp.bfloat16)
    return 2 * size**3 / seconds_of(jax.jit(jnp.matmul), matrix, matrix)


def measure(setup: Setup, deadline: float) -> None:
    """Prints a line for every width, direction and candidate."""
    size = 8192 if not setup.interpret else 512
    print(f'\n{"model":14}{"":20}{"pass":10}{"ms":>9}{"TFLOP/s":>10}{"of matmul":>11}')
    for name, shape in setup.models.items():
        experts, choices, width, ffn_width = shape
        case = made_up(setup.tokens, shape)
        flops = 6 * case.experts_TK.size * width * ffn_width
        ours = next(kernels(case, implementation=setup.implementation, interpret=setup.interpret))[1]
        shown = settings(
            'expert_ffn',
            slots=case.experts_TK.size,
            experts=experts,
            width=width,
            ffn_width=ffn_width,
            dtype=case.x_TD.dtype,
            implementation=setup.implementation,
            interpret=setup.interpret,
        )
        print(f'{name}: {setup.tokens} tokens, {experts} experts, top-{choices}, D {width}, F {ffn_width}; {shown}')
        candidates = {setup.implementation: ours}
        for peer, make in PEERS.items():
            if not setup.interpret or peer == 'ragged_dot':
                candidates[peer] = make(experts)
        primals = case.x_TD, case.weights_TK, case.weights
        rate = matmul_rate(size)
        for candidate, function in candidates.items():
            for label, run, arguments, share in (
                ('forward', jax.jit(function), primals, 1),
                ('and back', gradients(function), (primals, case.dy_TD), 3),
            ):
                if time.perf_counter() > deadline:
                    print('out of time; --only=MODEL measures the rest')
                    return
                try:
                    seconds = seconds_of(run, case.experts_TK, *arguments)
                except Exception as error:  # a peer that does not run here is no reason to end
                    print(f'{"":14}{candidate:20}{label:10} does not run: {str(error).splitlines()[0][:90]}')
                    continue
                speed = share * flops / seconds
                print(
                    f'{"":14}{candidate:20}{label:10}{seconds * 1e3:9.3f}{speed / 1e12:10.2f}{speed / rate:11.3f}',
                    flush=True,
                )
        print(f'{"":14}{"square matmul":30}{"":9}{rate / 1e12:10.2f}')


def main() -> int:
    """Checks, measures, and returns the exit code."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tokens', type=int, default=8192, help='T of what is timed')
    parser.add_argument('--only', default='', help=f'one of {", ".join(MODELS)}')
    parser.add_argument('--seconds', type=float, default=200, help='nothing new is timed after so many seconds')
    flags = parser.parse_args()
    platform = jax.default_backend()
    smoke = platform == 'cpu'
    models = SMOKE if smoke else {name: MODELS[name] for name in ([flags.only] if flags.only else MODELS)}
    setup = Setup('pallas_gpu' if smoke else best(platform), smoke, models, 64 if smoke else flags.tokens)
    print(f'jax {jax.__version__}, {jax.devices()[0].device_kind}, {setup.implementation}', flush=True)
    if not check(setup):
        return 1
    measure(setup, start + flags.seconds)
    print(f'{time.perf_counter() - start:.0f} s')
    return 0


if __name__ == '__main__':
    sys.exit(main())
