"""`smelt generate`, and what it asks of a run directory."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from absl import flags
from packs import sentences, small_pack

from smelt_jax.cli.flags import given_checkpoints
from smelt_jax.generate.ask import ask, prompt_tokens, read_prompts, spelled_out
from smelt_jax.generate.sampling import Sampling
from smelt_jax.runs import RunDir
from smelt_jax.train.load import tokenizer_of

pytestmark = pytest.mark.usefixtures('quick')

SHORT = Sampling(new_tokens=12, temperature=1.0)
PROMPTS = ['The ', 'grüße', '']


def test_the_verb_prints_what_json_has(smelt: Callable, trunk: Path, tmp_path: Path, quick_env: dict) -> None:
    (tmp_path / 'prompts.txt').write_text('grüße\n\n')
    same = (f'--checkpoint={trunk}@10', '--prompt=The ', '--prompt_file=prompts.txt', '--new_tokens=12')
    done = smelt('generate', *same, '--json', cwd=tmp_path, **quick_env)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line['prompt'] for line in lines] == PROMPTS
    assert all(line['tokens'] == 12 or line['end'] == 'eos' for line in lines)
    assert {(line['checkpoint'], line['step'], line['visits']) for line in lines} == {(f'{trunk}', 10, 1)}
    shown = ''.join(f'── {n}: {line["prompt"]!r}\n{line["text"]}\n' for n, line in enumerate(lines, 1))
    done = smelt('generate', *same, '--chunk=2', cwd=tmp_path, **quick_env)
    assert done.stdout == shown
    assert done.stderr == ''


@pytest.mark.parametrize(
    ('args', 'line'),
    [
        (['--checkpoint={trunk}@7', '--prompt=a'], 'has no checkpoint of step 7; it has [5, 10'),
        (['--checkpoint={trunk},{trunk}', '--prompt=a'], 'takes one checkpoint'),
        (['--checkpoint={trunk}'], 'no prompt: give --prompt=TEXT, or --prompt_file=FILE'),
    ],
)
def test_the_verb_says_what_is_wrong_in_a_line(smelt: Callable, trunk: Path, args: list[str], line: str) -> None:
    done = smelt('generate', *(arg.format(trunk=trunk) for arg in args), code=None)
    assert done.returncode in (1, 2)
    assert line in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ''


def test_text_comes_as_it_is_made(trunk: Path) -> None:
    pieces: list[list[str]] = [[], [], []]
    ends = [''] * 3

    def show(index: int, text: str, end: str) -> None:
        pieces[index].append(text)
        ends[index] = end

    found, by = ask(str(trunk), None, PROMPTS, SHORT, show=show)
    assert [''.join(each) for each in pieces] == [each.text for each in found]
    assert max(len(each) for each in pieces) == 2
    assert ends == [each.end for each in found]
    assert by == {'checkpoint': str(trunk), 'step': 12, 'visits': 1}


def test_a_stop_is_not_in_the_text(trunk: Path) -> None:
    (whole,), _ = ask(str(trunk), None, ['The '], SHORT)
    stop = whole.text[2:4]
    (cut,), _ = ask(str(trunk), None, ['The '], dataclasses.replace(SHORT, stops=(stop,)))
    assert (cut.text, cut.end) == (whole.text[: whole.text.index(stop)], 'stop')


def test_an_empty_prompt_begins_with_eos(trunk: Path) -> None:
    tokenizer, _ = tokenizer_of(trunk)
    assert prompt_tokens('', tokenizer).tolist() == [tokenizer.eos]
    assert prompt_tokens('ab', tokenizer).tolist() == tokenizer.encode('ab').tolist()


def test_what_cannot_be_asked_is_said(
    trunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r'gone is no run directory'):
        ask(str(tmp_path / 'gone'), None, ['a'], SHORT)
    with pytest.raises(ValueError, match=r'visits=2 of .*: its model has no loop; leave visits out'):
        ask(str(trunk), None, ['a'], SHORT, visits=2)
    with pytest.raises(ValueError, match=r'prompt 2 has 33 tokens, and a row of training had 32; .*--beyond'):
        ask(str(trunk), None, ['a', 'x' * 33], SHORT)
    assert capsys.readouterr().err == ''
    (found,), _ = ask(str(trunk), None, ['x' * 33], SHORT, beyond=True)
    assert found.tokens == 12 or found.end == 'eos'
    assert capsys.readouterr().err.startswith('note: 33 + 12 tokens; positions from 32 on')

    def exhausted(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.')

    monkeypatch.setattr('smelt_jax.generate.ask.generate', exhausted)
    with pytest.raises(
        ValueError, match=r'no memory for 2 prompts of up to 3 tokens and 12 more .*; lower --new_tokens'
    ):
        ask(str(trunk), None, ['abc', 'a'], SHORT)


@pytest.fixture
def moved(trunk: Path, tmp_path: Path) -> Path:
    """The run, whose pack is not where it was."""
    run = Path(shutil.copytree(trunk, tmp_path / 'run@12'))
    config = json.loads((run / 'config.json').read_text())
    config['data']['pack'] = str(tmp_path / 'gone')
    (run / 'config.json').write_text(json.dumps(config))
    return run


def test_the_tokenizer_is_the_runs(moved: Path, tiny_pack: Path, tmp_path: Path) -> None:
    wanted = RunDir(moved).lineage().tokenizer[:12]
    with pytest.raises(ValueError, match=rf'gone, the pack that .* read, is gone.*--pack=DIR .* \({wanted}\)'):
        tokenizer_of(moved)
    (tmp_path / 'bare').mkdir()  # no rows are needed
    shutil.copy(tiny_pack / 'manifest.json', tmp_path / 'bare')
    assert tokenizer_of(moved, str(tmp_path / 'bare'))[0].fingerprint == RunDir(moved).lineage().tokenizer
    small_pack(tmp_path / 'other', sentences(40), tokenizer='bpe:300')
    with pytest.raises(ValueError, match=rf'other has tokenizer bpe:300 \(.*was trained with another one \({wanted}\)'):
        tokenizer_of(moved, str(tmp_path / 'other'))


def test_prompts_come_from_flags_and_files(tmp_path: Path) -> None:
    (tmp_path / 'lines.txt').write_text('one\n\n{"a": 1}\n')
    assert read_prompts(['zero'], str(tmp_path / 'lines.txt')) == ['zero', 'one', '', '{"a": 1}']
    (tmp_path / 'lines.jsonl').write_text('{"prompt": "a\\nb", "more": 1}\n{"prompt": ""}')
    assert read_prompts([], str(tmp_path / 'lines.jsonl')) == ['a\nb', '']
    (tmp_path / 'lines.jsonl').write_text('{"prompt": "a"}\n{"text": "b"}\n')
    with pytest.raises(ValueError, match=r'lines\.jsonl, line 2: .*no JSON object with a text "prompt"'):
        read_prompts([], str(tmp_path / 'lines.jsonl'))
    (tmp_path / 'marked').write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n')
    assert read_prompts([], str(tmp_path / 'marked')) == ['a']
    for broken in ('\udcff', '\ud800'):
        with pytest.raises(ValueError, match=r'prompt 2 is no UTF-8 text: .*; mend it'):
            read_prompts(['a', broken], '')
    (tmp_path / 'empty').touch()
    for prompts, file in (([], ''), ([], str(tmp_path / 'empty'))):
        with pytest.raises(ValueError, match=r'no prompt: give --prompt=TEXT'):
            read_prompts(prompts, file)
    with pytest.raises(FileNotFoundError):
        read_prompts([], str(tmp_path / 'gone'))


def test_stops_are_spelled_as_shells_hand_them_over() -> None:
    assert [spelled_out(text) for text in (r'\n', r'a\tb', r'\\n', r'\d', '\n')] == ['\n', 'a\tb', r'\n', r'\d', '\n']


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> Callable:
    """What --checkpoint=ENTRIES gives."""

    def parse(*entries: str) -> list:
        values = flags.FlagValues()
        flags.DEFINE_list('checkpoint', list(entries), '', flag_values=values)
        values.mark_as_parsed()
        monkeypatch.setattr('smelt_jax.cli.flags.FLAGS', values)
        return given_checkpoints()

    return parse


def test_a_checkpoint_is_a_folder_and_a_step(checkpoints: Callable, moved: Path) -> None:
    assert checkpoints('runs/a', 'runs/b@10', 'c@d@0') == [('runs/a', None), ('runs/b', 10), ('c@d', 0)]
    assert checkpoints(str(moved), f'{moved}@5') == [(str(moved), None), (str(moved), 5)]  # run@12 is a folder
    for wrong, line in (('runs/a@last', "'last' is no step"), ('runs/a@', "'' is no step"), ('@5', 'names no folder')):
        with pytest.raises(ValueError, match=f'--checkpoint={wrong}: .*{line}'):
            checkpoints(wrong)
