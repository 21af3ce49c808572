"""Small corpora and packs for the tests of the data room."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from smelt_jax.data.config import PackConfig
from smelt_jax.data.manifest import Manifest
from smelt_jax.data.packing import pack
from smelt_jax.data.rows import PackedRows


def write_jsonl(path: Path, texts: Iterable[str], domain: str = 'Web', source: str = 'pages') -> str:
    """Writes documents as JSON lines; returns the corpus spec."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({'text': text, 'domain': domain, 'source': source}) + '\n' for text in texts)
    path.write_text(''.join(lines))
    return f'jsonl:{path}'


def sentences(count: int, seed: int = 0) -> list[str]:
    """Different texts of 5 to about 900 characters, some beyond ASCII."""
    random = np.random.default_rng(seed)
    words = ['alpha', 'beta', 'naïve', 'Straße', '東京', '🙂', 'x=1;', '\n', 'the', 'of']
    return [f'{seed}/{i} ' + ' '.join(random.choice(words, random.integers(1, 150))) for i in range(count)]


def small_config(corpus: str, **settings: object) -> PackConfig:
    """Bytes, T = 32, a fifth held out, unless `settings` say otherwise."""
    values: dict = {'corpora': (corpus,), 'row_tokens': 32, 'heldout_fraction': 0.2, 'workers': 1} | settings
    return PackConfig(**values)


def small_pack(out: Path, texts: Sequence[str], **settings: object) -> Manifest:
    """Packs `texts`, written beside `out`, by `small_config`."""
    corpus = write_jsonl(out.parent / f'{out.name}-corpus' / 'texts.jsonl', texts)
    return pack(small_config(corpus, **settings), out)


def documents_in(folder: Path, split: str) -> list[list[int]]:
    """The documents as the rows have them, without EOS: all tokens in order, padding left out, cut after every EOS."""
    rows = PackedRows(folder, split)
    stream = np.concatenate([row.tokens[row.segment_ids > 0] for row in rows])
    ends = np.flatnonzero(stream == rows.manifest.eos)
    assert ends[-1] == len(stream) - 1, 'the stream ends inside a document'
    return [piece[(0 if i == 0 else 1) :].tolist() for i, piece in enumerate(np.split(stream, ends)[:-1])]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
