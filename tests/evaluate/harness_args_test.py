"""What lm-evaluation-harness may say to a model, and what it says where it is not installed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smelt_jax.evaluate.harness_args import Args, arguments, check_flags, sampling
from smelt_jax.generate.sampling import Sampling
from smelt_jax.parallel.config import MeshConfig


def test_arguments() -> None:
    assert arguments({'checkpoint': 'runs/a'}) == Args('runs/a')
    assert arguments({'checkpoint': 7, 'pack': 8}) == Args('7', pack='8')  # folders that look like numbers
    given = arguments({'checkpoint': 'a@5', 'visits': 3, 'batch_tokens': 64, 'room': 9, 'fsdp': 2, 'expert': -1})
    assert given == Args('a@5', 3, batch_tokens=64, room=9, fsdp=2, expert=-1)
    assert given.mesh() == MeshConfig(fsdp=2, expert=-1)
    assert Args('a').mesh() is None


@pytest.mark.parametrize(
    ('given', 'complaint'),
    [
        ({}, r'checkpoint=DIR\[@STEP\] is missing'),
        ({'checkpoint': None}, r'checkpoint=DIR\[@STEP\] is missing'),
        ({'pretrained': 'a'}, 'there is no pretrained; there are checkpoint, visits, pack'),
        ({'checkpoint': 'a', 'visit': 2}, 'there is no visit; did you mean visits?'),
        ({'checkpoint': 'a', 'visits': 0}, 'visits=0 is no whole number from 1 on'),
        ({'checkpoint': 'a', 'visits': True}, 'visits=True is no whole number from 1 on'),
        ({'checkpoint': 'a', 'room': 2.5}, 'room=2.5 is no whole number from 2 on'),
        ({'checkpoint': 'a', 'pack': None}, 'pack=None is no folder'),
        ({'checkpoint': 'a', 'fsdp': 0}, 'mesh.fsdp=0: must be at least 1'),
        ({'checkpoint': 'a', 'expert': -1}, 'one of them can be -1'),
    ],
)
def test_a_bad_argument_is_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        arguments(given)
    assert '\n' not in str(caught.value)


def test_flags_without_effect_are_refused_unless_the_harness_gives_them_itself() -> None:
    for batch_size in (None, 1, '1', 'auto', 'auto:4'):
        check_flags(batch_size, None, 'cuda:0')
    for flags in ((16, None, None), ('16', None, None), ('auto', 64, None)):
        with pytest.raises(ValueError, match='batches are counted in tokens'):
            check_flags(*flags)
    with pytest.raises(ValueError, match='device=cpu: leave it out'):
        check_flags(None, None, 'cpu')


@pytest.mark.parametrize(
    ('asked', 'expected'),
    [
        ({}, Sampling(256)),
        ({'until': '\n', 'max_gen_toks': 9}, Sampling(9, stops=('\n',))),
        ({'until': ['a', 'b'], 'max_new_tokens': 7, 'num_beams': 1}, Sampling(7, stops=('a', 'b'))),
        ({'until': None, 'max_gen_toks': '5', 'max_tokens': 6}, Sampling(5)),
        ({'do_sample': False, 'temperature': 0.7}, Sampling(256)),
        ({'do_sample': True}, Sampling(256, temperature=1)),
        ({'temperature': 0.7, 'top_p': 0.9, 'top_k': 5}, Sampling(256, temperature=0.7, top_p=0.9, top_k=5)),
        ({'temperature': 0.0}, Sampling(256)),
    ],
)
def test_gen_kwargs(asked: dict[str, Any], expected: Sampling) -> None:
    assert sampling(asked, seed=0) == expected
    assert sampling(asked, seed=4).seed == 4


@pytest.mark.parametrize(
    ('asked', 'complaint'),
    [
        ({'num_beams': 4}, 'num_beams=4 is not known here'),
        ({'repetition_penalty': 1.1}, 'repetition_penalty=1.1 is not known here; leave it out. There are max_gen_toks'),
        ({'temperature': -1, 'do_sample': True}, 'temperature=-1'),
        ({'temperature': 'warm'}, "temperature='warm' is no number"),
        ({'max_gen_toks': 0}, 'new_tokens=0'),
        ({'max_gen_toks': 'all'}, "max_gen_toks='all' is no number"),
        ({'do_sample': 'yes'}, "do_sample='yes' is neither true nor false"),
    ],
)
def test_bad_gen_kwargs_are_named(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sampling(asked, seed=0)


def test_without_lm_eval_the_program_says_what_to_install() -> None:
    code = """
import sys
sys.modules['lm_eval'] = None  # as if it were not installed
from smelt_jax.cli.harness import command
command()
"""
    environment = os.environ | {'PYTHONPATH': str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == 'smelt-lm-eval: error: lm-eval is not installed; pip install "smelt_jax[eval]"\n'
