"""Rows give back the text they were packed from, and the references see the text that training sees."""

import itertools
from pathlib import Path

import pytest
from packs import documents_in
from runs_helper import RUN, make_pack

from smelt_jax.data.manifest import load_tokenizer
from smelt_jax.data.rows import PackedRows, train_batches
from smelt_jax.evaluate import text
from smelt_jax.evaluate.text import pack_references, segments


@pytest.mark.parametrize('split', ['train', 'heldout'])
@pytest.mark.parametrize('tokenizer', ['bytes', 'bpe:300'])
def test_the_text_of_all_segments_is_that_of_the_documents(tmp_path: Path, split: str, tokenizer: str) -> None:
    """Parts of a document that rows have cut come one after the other."""
    pack = make_pack(tmp_path, count=5, tokenizer=tokenizer)
    decode = load_tokenizer(pack).decode
    documents = [decode(ids) for ids in documents_in(pack, split)]
    found = list(segments(str(pack), iter(PackedRows(pack, split))))
    assert b''.join(found) == b''.join(documents)
    assert len(found) == sum(int(row.segment_ids.max()) for row in PackedRows(pack, split)) > len(documents)
    assert '東京'.encode() in b''.join(found)


class Spy:
    """In the place of the trigram."""

    fitted: tuple[bytes, ...] = ()
    scored: tuple[bytes, ...] = ()

    @classmethod
    def fit(cls, documents) -> 'Spy':
        cls.fitted = tuple(documents)
        return cls()

    def bits_per_byte(self, documents) -> float:
        Spy.scored = tuple(documents)
        return 4.5


@pytest.mark.parametrize('steps', [1, 30])
def test_the_trigram_is_fitted_on_the_rows_that_training_reads(
    tiny_pack: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(text, 'Trigram', Spy)
    references = pack_references(str(tiny_pack), RUN.data, steps)
    assert references.keys() == {'byte trigram', 'xz -9'}
    assert references['byte trigram'] == 4.5
    assert 0.5 < references['xz -9'] < 8

    rows = PackedRows(tiny_pack, 'train')
    batches = itertools.islice(train_batches(tiny_pack, RUN.data, 0), steps)
    read = [rows[int(row)] for _, row_ids, _ in batches for row in row_ids]
    assert len(read) == steps * RUN.data.batch_rows
    assert Spy.fitted == tuple(segments(str(tiny_pack), iter(read)))
    assert Spy.scored == tuple(segments(str(tiny_pack), iter(PackedRows(tiny_pack, 'heldout'))))
