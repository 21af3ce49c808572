"""A score is the plain log-probability of the span, whatever else is asked, in whatever order, on however many devices."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence

import jax
import numpy as np
import pytest
from models import TINY, edit, params_of
from runs_helper import ROOT, free_port
from scores import log_probs, slow

from smelt_jax.evaluate.filling import rung
from smelt_jax.evaluate.questions import documents_of
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices, one_device
from smelt_jax.tasks.request import Request, Scored

pytestmark = pytest.mark.usefixtures('quick')

MODEL = edit(TINY, experts__count=8)
LENGTHS = (2, 3, 8, 17, 22)


def made_up(seed: int = 0) -> list[Request]:
    """Of each length: all but the first token, the last token alone, something between."""
    rng = np.random.default_rng(seed)
    spans = [(length, start) for length in LENGTHS for start in sorted({1, length // 2, length - 1})] * 2
    return [Request(rng.integers(0, MODEL.vocab, length, np.int32), start, '') for length, start in spans]


def scorer(model: ModelConfig = MODEL, visits: int | None = None, params: dict | None = None, **sizes: int) -> Scorer:
    sizes = {'batch_tokens': 48, 'row_tokens': 24, 'chunk_tokens': 8} | sizes
    return Scorer(model, params or params_of(model), one_device(), visits, **sizes)


def assert_alike(found: Sequence[Scored], expected: Sequence[Scored], tolerance: float = 1e-4) -> None:
    assert [(one.tokens, one.greedy) for one in found] == [(one.tokens, one.greedy) for one in expected]
    np.testing.assert_allclose([one.log_prob for one in found], [one.log_prob for one in expected], atol=tolerance)


@pytest.mark.parametrize('visits', [None, 1])
def test_scores_are_those_of_full_logits(visits: int | None) -> None:
    found = scorer(visits=visits).score(made_up())
    assert_alike(found, slow(MODEL, params_of(MODEL), made_up(), visits or 2))
    assert {one.tokens for one in found} >= {1, 21}


def test_mates_order_and_shapes_change_nothing() -> None:
    requests, order = made_up(), np.random.default_rng(1).permutation(len(made_up()))
    together = scorer().score(requests)
    assert_alike(scorer().score([requests[i] for i in order]), [together[i] for i in order], 1e-5)
    for index in (0, 7, 13):
        assert_alike(scorer().score([requests[index]]), [together[index]], 1e-5)
    assert_alike(scorer(row_tokens=8, batch_tokens=1, chunk_tokens=5).score(requests), together, 1e-5)
    assert scorer().score([]) == []


def test_the_most_probable_continuation_is_greedy() -> None:
    """Three tokens, each the most probable after those before; then each in turn another one."""
    params, (tokens, *_) = params_of(MODEL), made_up()[-1]
    for at in (19, 20, 21):
        tokens[at] = np.argmax(log_probs(MODEL, params, tokens, 2)[at - 1])
    right, wrong = Request(tokens, 19, ''), []
    for at in (19, 20, 21):
        wrong.append(Request(tokens.copy(), 19, ''))
        wrong[-1].tokens[at] = (tokens[at] + 1) % MODEL.vocab
    assert [one.greedy for one in scorer().score([*wrong, right])] == [False, False, False, True]


def test_of_tokens_that_are_equally_probable_the_lowest_is_greedy() -> None:
    params = params_of(MODEL)
    params = params | {'head': np.zeros_like(params['head'])}
    found = scorer(params=params).score([Request(np.array([5, *span], np.int32), 1, '') for span in ([0, 0], [0, 1])])
    assert_alike(found, [Scored(-2 * math.log(MODEL.vocab), 2, greedy) for greedy in (True, False)], 1e-5)


def choices(tokens: np.ndarray, start: int, lasts: Sequence[int]) -> list[Request]:
    return [Request(np.append(tokens, np.int32(last)), start, '') for last in lasts]


def test_what_differs_in_its_last_token_alone_is_read_once() -> None:
    tokens = made_up()[-1].tokens[:-1]
    requests = [
        *choices(tokens, 21, (4, 9, 4, 60)),
        *made_up(),
        *choices(tokens, 20, (9, 3)),
        *choices(tokens[:2], 1, (4, 9)),
    ]
    documents, where = documents_of(requests, MODEL.vocab)
    assert [where[i] for i in range(4)] == [(0, 0), (0, 1), (0, 0), (0, 2)]
    assert where[-4][0] == where[-3][0] != 0  # another span
    assert where[-2][0] != where[-1][0]  # one token, one question: the rest has no room
    assert all(document.questions == len(document.at) <= len(document.inputs) for document in documents)
    assert_alike(scorer().score(requests), slow(MODEL, params_of(MODEL), requests, 2))


def test_one_program_a_shape() -> None:
    """Lengths are many, programs few; another scorer of the same model compiles nothing."""
    rng = np.random.default_rng(0)
    requests = [Request(rng.integers(0, 61, size, np.int32), 1, '') for size in range(2, 30)]
    one = scorer(chunk_tokens=7)
    before = one.ask._cache_size()
    one.score(requests)
    compiled = one.ask._cache_size() - before
    assert compiled == len({batch.length for batch in one.fill(documents_of(requests, 61)[0])})
    assert 1 < compiled <= len({rung(length) for length in range(6, 30)})
    scorer(chunk_tokens=7, params=params_of(MODEL, 1)).score(requests[::-1])
    assert one.ask._cache_size() - before == compiled


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    scorer().score([*made_up(), made_up()[3]], lambda *numbers: told.append(numbers))
    assert told == sorted(set(told))
    assert len(told) > 3
    assert told[-1] == (len(made_up()) + 1,) * 2


@pytest.mark.parametrize(
    ('sizes', 'exchange'),
    [((8, 1, 1), 'auto'), ((1, 8, 1), 'auto'), ((1, 1, 8), 'ragged'), ((2, 2, 2), 'gather')],
    ids=str,
)
def test_eight_devices_score_as_one(sizes: tuple[int, int, int], exchange: str) -> None:
    """Nor does a bounded buffer drop anything."""
    devices = Devices.of(MeshConfig(*sizes, exchange=exchange, buffer=1.0 if exchange == 'ragged' else 0.0))
    params = params_of(MODEL)
    params = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), params, devices.placed(params))
    found = Scorer(MODEL, params, devices, batch_tokens=24, row_tokens=24, chunk_tokens=8).score(made_up())
    assert_alike(found, scorer().score(made_up()), 1e-5)


def test_bfloat16_is_near() -> None:
    """A token's log-probability to a few hundredths mostly, of logits of several units."""
    model, requests = edit(MODEL, dtype='bfloat16'), made_up()
    exact = slow(MODEL, params_of(MODEL), requests, 2)
    found = scorer(model).score(requests)
    errors = [
        abs(one.log_prob - other.log_prob) / math.sqrt(one.tokens) for one, other in zip(found, exact, strict=True)
    ]
    assert max(errors) < 0.5  # an expert that is chosen otherwise
    assert np.median(errors) < 0.05


@pytest.mark.parametrize('start', [0, 3, -1])
def test_a_span_that_is_none_is_refused(start: int) -> None:
    requests = [*made_up()[:2], Request(np.arange(3, dtype=np.int32), start, '')]
    with pytest.raises(ValueError, match=rf'^request 2: start={start} of 3 tokens; .*1 <= start < 3$'):
        scorer().score(requests)


@pytest.mark.parametrize('token', [-1, 61])
def test_a_token_that_the_model_lacks_is_refused(token: int) -> None:
    requests = [*made_up()[:2], Request(np.array([3, token], np.int32), 1, '')]
    with pytest.raises(ValueError, match=r'^request 2 has tokens from .* the model has 61'):
        scorer().score(requests)


def test_what_is_not_finite_is_refused() -> None:
    """Each in a row of its own: a NaN reaches what shares a row, of whose keys it is none but weighted 0."""
    params = params_of(MODEL)
    embed = np.array(params['embed'])
    embed[60] = np.nan
    spoiled = scorer(params=params | {'embed': embed}, row_tokens=8, batch_tokens=1, chunk_tokens=5)
    requests = [Request(np.full(8, number, np.int32), 3, '') for number in range(3)]
    assert all(math.isfinite(one.log_prob) for one in spoiled.score(requests))
    requests[1].tokens[2] = 60
    with pytest.raises(ValueError, match=r'^request 1: its log-probability at visits=2 is nan'):
        spoiled.score(requests)


PROCESS = """
import json, sys
import jax
from smelt_jax.parallel import processes
number, port = int(sys.argv[1]), sys.argv[2]
processes.start(f'localhost:{port}', number, 2, 60)
sys.path.insert(0, 'tests')
from models import params_of
from evaluate.scoring_test import MODEL, made_up
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.parallel.devices import Devices
devices = Devices.of(MeshConfig(fsdp=2, expert=2))
params = params_of(MODEL)
params = jax.tree.map(lambda leaf, like: jax.device_put(jax.device_get(leaf), like.sharding), params, devices.placed(params))
print(json.dumps(Scorer(MODEL, params, devices, batch_tokens=24, row_tokens=24, chunk_tokens=8).score(made_up())))
processes.part()
"""


def test_every_process_gets_all_scores(quick_env: dict) -> None:
    port, flags = free_port(), '--xla_force_host_platform_device_count=2'
    env = os.environ | quick_env | {'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags}
    pipe: dict = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
    crowd = [
        subprocess.Popen([sys.executable, '-c', PROCESS, str(i), str(port)], cwd=ROOT, env=env, **pipe)
        for i in range(2)
    ]
    said = [process.communicate(timeout=300) for process in crowd]
    assert [process.returncode for process in crowd] == [0, 0], said
    expected = scorer().score(made_up())
    for out, _ in said:
        assert_alike([Scored(*one) for one in json.loads(out.splitlines()[-1])], expected, 1e-5)
