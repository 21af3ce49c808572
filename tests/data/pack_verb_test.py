"""`smelt pack` as a user runs it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from packs import sentences, write_jsonl

Smelt = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = """
from smelt_jax.config import default_config
def get_config():
    config = default_config()
    config.pack.row_tokens = 32
    config.pack.heldout_fraction = 0.2
    config.pack.workers = 2
    return config
"""


def test_pack_then_nothing_to_do_then_a_refusal(tmp_path: Path, smelt: Smelt) -> None:
    (tmp_path / 'mine.py').write_text(CONFIG)
    # Two parts, and so two processes, of a program that was started as one is.
    corpus = write_jsonl(tmp_path / 'texts.jsonl', sentences(8000), domain='[/INST]', source='[red]s')
    args = ['pack', f'--config={tmp_path}/mine.py', f'--out={tmp_path}/p', f'--config.pack.corpora=("{corpus}",)']
    done = smelt(*args)
    manifest = json.loads((tmp_path / 'p' / 'manifest.json').read_text())
    assert f'train: {manifest["train"]["rows"]:,} rows of 32 tokens' in done.stdout
    assert f'{manifest["train"]["mean_attended_keys"]:.1f} train' in done.stdout
    assert f'{manifest["heldout"]["documents"]:,}' in done.stdout
    assert '[/INST]' in done.stdout  # a label is text, no markup
    assert '[red]s' in done.stdout
    again = smelt(*args)
    assert 'nothing to do' in again.stderr
    assert again.stdout == done.stdout
    other = smelt(*args, '--config.pack.seed=1', code=1)
    assert 'holds a pack of other inputs (seed: 0 -> 1)' in other.stderr
    assert len(other.stderr.strip().splitlines()) == 1
    empty = write_jsonl(tmp_path / 'empty.jsonl', [])
    done = smelt(args[0], args[1], f'--out={tmp_path}/q', f'--config.pack.corpora=("{empty}",)', code=1)
    assert 'hold no text' in done.stderr.strip().splitlines()[-1]
