"""Real text in five domains, where it is at hand: SMELT_TEST_CORPUS, or shared/data/corpus beside the repository."""

import csv
import os
from collections import defaultdict
from pathlib import Path

import pytest
from packs import documents_in

from smelt_jax.data import manifest
from smelt_jax.data.config import PackConfig
from smelt_jax.data.manifest import load_tokenizer
from smelt_jax.data.packing import pack

CORPUS = Path(os.environ.get('SMELT_TEST_CORPUS') or Path(__file__).parents[3] / 'shared' / 'data' / 'corpus')
pytestmark = pytest.mark.skipif(not (CORPUS / 'SOURCES.csv').exists(), reason=f'no corpus at {CORPUS}')


def test_documents_and_bytes_are_those_of_its_own_list(tmp_path: Path) -> None:
    listed: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    with open(CORPUS / 'SOURCES.csv') as file:
        for row in csv.DictReader(file):
            listed[row['domain'], row['source']][0] += int(row['docs'])
            listed[row['domain'], row['source']][1] += int(row['text_bytes'])
    made = pack(PackConfig(corpora=(f'jsonl:{CORPUS}/*/*.jsonl.gz',), heldout_fraction=0.05), tmp_path / 'p')
    packed: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for split in manifest.SPLITS:
        for source in made.split(split).sources:
            packed[source.domain, source.name][0] += source.documents
            packed[source.domain, source.name][1] += source.bytes
    assert packed == listed
    assert made.replaced_utf8 == made.empty == made.dropped_duplicates == 0
    share = made.heldout.documents / (made.train.documents + made.heldout.documents)
    assert 0.04 < share < 0.06
    assert all(source.documents for source in made.heldout.sources)  # each source has something held out
    for split in manifest.SPLITS:
        assert 200 < made.split(split).mean_attended_keys < (512 + 1) / 2


def test_a_bpe_pack_of_it_gives_every_text_back(tmp_path: Path) -> None:
    corpora = (f'jsonl:{CORPUS}/finance/fomc*.gz', f'jsonl:{CORPUS}/code/go*.val.jsonl.gz')
    for name, spec in [('bpe', 'bpe:1000'), ('bytes', 'bytes')]:
        pack(PackConfig(corpora=corpora, tokenizer=spec, row_tokens=100), tmp_path / name)
    tokenizer = load_tokenizer(tmp_path / 'bpe')
    for split in manifest.SPLITS:
        decoded = [tokenizer.decode(document) for document in documents_in(tmp_path / 'bpe', split)]
        assert decoded == [bytes(document) for document in documents_in(tmp_path / 'bytes', split)]
