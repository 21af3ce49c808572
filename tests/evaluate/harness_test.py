"""lm-evaluation-harness asks what `smelt evaluate` asks, and gets the same answers."""

import json
import os
import string
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip('lm_eval')

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

import smelt_jax.evaluate.harness  # noqa: F401  (registers the model)
from smelt_jax.evaluate.opened import Opened, open_checkpoint
from smelt_jax.evaluate.scoring import Scorer
from smelt_jax.generate.decode import generate
from smelt_jax.generate.sampling import Sampling
from smelt_jax.generate.text import before
from smelt_jax.storage.files import as_path
from smelt_jax.tasks.prompts import prompts
from smelt_jax.tasks.reading import examples
from smelt_jax.tasks.request import Request, Scored
from smelt_jax.tasks.task import Task

pytestmark = pytest.mark.usefixtures('quick')

CHOICES = [
    {'query': 'Q: of what is bread made?\nA:', 'choices': ['flour', 'a long road'], 'gold': 0},
    {'query': '', 'choices': ['the first word', 'another one'], 'gold': 1},
    {'query': 'Q: which of three?\nA:', 'choices': ['é', 'no', 'yes it does'], 'gold': 2},
]
SHOT = {'query': 'Q: what is water?\nA:', 'choices': ['wet', 'dry'], 'gold': 0}
TEXTS = ['a text of some length, é and all', 'b', '']
CONTEXTS = ['Say something:', '', 'Two lines\n', 'and one more context, longer than others are']
STOPS = ['\n\n', *string.ascii_letters]
DRAWN = {'do_sample': True, 'temperature': 0.9, 'top_p': 0.95, 'top_k': 40}
TASKS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    'rolling': (
        [{'text': text} for text in TEXTS],
        {
            'output_type': 'loglikelihood_rolling',
            'doc_to_text': '',
            'doc_to_target': '{{text}}',
            'metric_list': [{'metric': 'bits_per_byte'}],
        },
    ),
}
for name, delimiter in {'choice': ' ', 'tight': ''}.items():
    TASKS[name] = (
        [{**row, 'query': row['query'] + ' ' * (not delimiter)} for row in CHOICES],
        {
            'output_type': 'multiple_choice',
            'doc_to_text': '{{query}}',
            'doc_to_choice': '{{choices}}',
            'doc_to_target': 'gold',
            'target_delimiter': delimiter,
            'fewshot_delimiter': '\n',
            'fewshot_split': 'train',
            'fewshot_config': {'sampler': 'first_n'},
            'metric_list': [{'metric': 'acc'}, {'metric': 'acc_norm'}],
        },
    )
for name, keys in {'greedy': {'do_sample': False, 'temperature': 1}, 'drawn': DRAWN}.items():
    TASKS[name] = (
        [{'text': text} for text in CONTEXTS],
        {
            'output_type': 'generate_until',
            'doc_to_text': '{{text}}',
            'doc_to_target': '{{text}}',
            'generation_kwargs': {'until': STOPS, 'max_gen_toks': 24, **keys},
            'metric_list': [{'metric': 'exact_match'}],
        },
    )


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the tasks: a YAML, which is JSON, and JSON lines."""
    tasks = tmp_path_factory.mktemp('tasks')
    for name, (rows, task) in TASKS.items():
        files = {'test': write(tasks / f'{name}.jsonl', rows)}
        if 'fewshot_split' in task:
            files['train'] = write(tasks / f'{name}_shots.jsonl', [SHOT])
        source = {'dataset_path': 'json', 'dataset_kwargs': {'data_files': files, 'cache_dir': str(tasks / 'cache')}}
        whole = {'task': name, 'test_split': 'test', 'metadata': {'version': 1}, **source, **task}
        (tasks / f'{name}.yaml').write_text(json.dumps(whole))
    return tasks


def write(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return str(file)


def asked(folder: Path, made: Path, tasks: Sequence[str], shots: int = 0, **args: Any) -> dict[str, Any]:
    """What the harness answers. `samples` has a list a task, as `resps` says below."""
    found = simple_evaluate(
        model='smelt',
        model_args={'checkpoint': str(made), **args},
        tasks=list(tasks),
        num_fewshot=shots or None,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
    )
    assert found is not None
    return found


def resps(found: dict[str, Any], task: str) -> list[Any]:
    """The model's answers to the requests of a task, in order."""
    samples = sorted(found['samples'][task], key=lambda sample: sample['doc_id'])
    return [answer for sample in samples for (answer,) in sample['resps']]


def scored(opened: Opened, visits: int, requests: Sequence[Request]) -> list[Scored]:
    return Scorer(opened.run.model, opened.params, opened.devices, visits).score(requests)


def ours(opened: Opened, folder: Path, name: str, shots: int, room: int) -> list[Request]:
    """The requests of a task's choices as `smelt evaluate` makes them."""
    task = Task(name, 'multiple_choice', f'{name}.jsonl', shots, 0.0, TASKS[name][1]['target_delimiter'])
    pool = examples(Task('shots', 'multiple_choice', f'{name}_shots.jsonl', 0, 0.0), as_path(folder))
    found = prompts(task, examples(task, as_path(folder)), shots, 0, opened.tokenizer, room, pool)
    return [request for prompt in found for request in prompt.requests]


def said(opened: Opened, visits: int, settings: Sampling) -> list[str]:
    """How `generate` goes on from the contexts."""
    tokenizer, params = opened.tokenizer, opened.params
    starts = [tokenizer.encode(text) if text else np.array([tokenizer.eos], np.int32) for text in CONTEXTS]
    new = generate(
        params, opened.run.model, opened.devices, starts, settings, visits, tokenizer.eos, tokenizer=tokenizer
    )
    return [before(tokenizer.decode(tokens), settings.stops).decode('utf-8', 'replace') for tokens in new]


@pytest.mark.parametrize('visits', [1, 2])
@pytest.mark.parametrize('shots', [0, 1])
def test_log_probabilities_are_those_of_our_own_prompts(folder: Path, made: Path, visits: int, shots: int) -> None:
    found = asked(folder, made, ['choice', 'tight'], shots, visits=visits, room=256)
    opened = open_checkpoint(str(made), visits=visits)
    for name in ('choice', 'tight'):
        expected = scored(opened, visits, ours(opened, folder, name, shots, 256))
        log_probs, greedy = zip(*resps(found, name), strict=True)
        assert len(log_probs) == 7
        np.testing.assert_allclose(log_probs, [one.log_prob for one in expected], rtol=0, atol=1e-4)
        assert list(greedy) == [one.greedy for one in expected]
        assert 0 <= found['results'][name]['acc,none'] <= 1
        assert found['configs'][name]['num_fewshot'] == shots


@pytest.mark.parametrize('visits', [1, 2])
def test_what_is_generated_is_what_generate_says(folder: Path, made: Path, visits: int) -> None:
    found = asked(folder, made, ['greedy', 'drawn'], visits=visits, room=128, seed=3)
    opened = open_checkpoint(str(made), visits=visits)
    plain = Sampling(new_tokens=24, stops=tuple(STOPS))
    drawn = Sampling(24, temperature=0.9, top_p=0.95, top_k=40, seed=3, stops=plain.stops)
    assert resps(found, 'greedy') == said(opened, visits, plain)
    assert resps(found, 'drawn') == said(opened, visits, drawn)
    assert resps(found, 'greedy') != said(opened, visits, Sampling(24))  # some did stop
    assert len({*resps(found, 'greedy'), *resps(found, 'drawn')}) > 4


@pytest.mark.parametrize('visits', [1, 2])
def test_a_whole_text_begins_after_eos_and_goes_on_in_windows(folder: Path, made: Path, visits: int) -> None:
    opened = open_checkpoint(str(made), visits=visits)
    eos = opened.tokenizer.eos
    whole = [np.array([eos, *text.encode()], np.int32) for text in TEXTS]
    tokens = whole[0]
    assert len(tokens) == 34
    # Rooms of 16: EOS and 15 tokens, 15 after the last of those, and the last 3 after all there is room for.
    parts = [Request(tokens[:16], 1, ''), Request(tokens[15:31], 1, ''), Request(tokens[18:34], 13, '')]
    short, *windows = (one.log_prob for one in scored(opened, visits, [Request(whole[1], 1, ''), *parts]))
    found = resps(asked(folder, made, ['rolling'], visits=visits, room=16), 'rolling')
    np.testing.assert_allclose(found, [sum(windows), short, 0], rtol=0, atol=1e-4)
    (at_once,) = scored(opened, visits, [Request(tokens, 1, '')])
    found = resps(asked(folder, made, ['rolling'], visits=visits, room=34), 'rolling')
    np.testing.assert_allclose(found, [at_once.log_prob, short, 0], rtol=0, atol=1e-4)


def test_what_has_no_room_is_cut_as_ours_and_counted(folder: Path, made: Path) -> None:
    found = asked(folder, made, ['choice', 'greedy'], room=30)
    opened = open_checkpoint(str(made))
    visits = opened.run.model.loop.visits
    expected = scored(opened, visits, ours(opened, folder, 'choice', 0, 30))
    np.testing.assert_allclose(
        [log_prob for log_prob, _ in resps(found, 'choice')], [one.log_prob for one in expected], rtol=0, atol=1e-4
    )
    told = found['config']['smelt']
    assert told['cut'] == {'choice': 2, 'greedy': 3}
    assert (told['room'], told['visits'], told['step'], told['name']) == (30, 2, 10, 'tiny')


@pytest.mark.parametrize(
    ('args', 'complaint'),
    [
        ({'room': 10}, r'^document 0 of task choice: a continuation of 12 tokens, .* no room in 10; give more room'),
        ({'vists': 2}, '^model_args: there is no vists; did you mean visits\\?$'),
        ({'visits': 'two'}, '^model_args: visits=two is no whole number from 1 on$'),
        ({'checkpoint': 'nowhere@x'}, "^model_args: checkpoint=nowhere@x: there is no such folder, and 'x' is no step"),
        ({'batch_size': 8}, 'batches are counted in tokens'),
        ({'device': 'cpu'}, 'those that JAX_PLATFORMS says'),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(folder: Path, made: Path, args: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        asked(folder, made, ['choice'], **args)
    assert '\n' not in str(caught.value)


def test_there_is_no_chat_template(folder: Path, made: Path) -> None:
    with pytest.raises(ValueError, match=r'^a smelt checkpoint is pretrained, and has no chat template; leave .* out$'):
        simple_evaluate(
            model='smelt',
            model_args={'checkpoint': str(made)},
            tasks=['choice'],
            apply_chat_template=True,
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        )


def test_the_program_knows_the_model(folder: Path, made: Path, tmp_path: Path, quick_env: dict[str, str]) -> None:
    words = ['--model', 'smelt', '--include_path', str(folder), '--tasks', 'choice', '--output_path', str(tmp_path)]
    done = program(*words, '--model_args', f'checkpoint={made}@5,visits=2,room=64,fsdp=1', **quick_env)
    assert done.returncode == 0, done.stderr
    assert '|choice|' in done.stdout
    (file,) = tmp_path.rglob('results*.json')
    told = json.loads(file.read_text())['config']['smelt']
    assert (told['step'], told['visits'], told['room']) == (5, 2, 64)
    done = program(*words, '--model_args', f'checkpoint={made},room=1', **quick_env)
    assert done.returncode == 1
    assert done.stderr.split('\n')[-2] == 'smelt-lm-eval: error: model_args: room=1 is no whole number from 2 on'


def program(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    code = 'from smelt_jax.cli.harness import command; command()'
    environment = os.environ | {'PYTHONPATH': str(Path(__file__).parents[2]), 'XLA_FLAGS': '', 'HF_HUB_OFFLINE': '1'}
    return subprocess.run(
        [sys.executable, '-c', code, *words], env=environment | env, capture_output=True, text=True, timeout=280
    )
