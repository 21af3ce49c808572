"""The text in packed rows, and what simple compressors make of it."""

from collections.abc import Iterator

import numpy as np

from smelt_jax.data.config import RowsConfig
from smelt_jax.data.manifest import load_tokenizer
from smelt_jax.data.rows import PackedRows, Row, heldout_ids, row_ids
from smelt_jax.evaluate.references import Trigram, xz_bits_per_byte


def pack_references(pack: str, rows: RowsConfig, steps: int, max_rows: int = 0) -> dict[str, float]:
    """Bits per byte of the held-out text by a byte trigram and by xz.

    Args:
      pack: packed rows.
      rows, steps: the trigram is fitted on the rows that a run of these settings reads in so many steps: the same text.
      max_rows: held-out rows that are scored, as for the models; 0 for all.

    The held-out text is that of the rows the models are scored on. Unlike the models, both are charged for the first token
    of a segment too.
    """
    training = PackedRows(pack, 'train')
    read = (training[int(row)] for step in range(steps) for row in row_ids(training, rows, step))
    heldout_rows = PackedRows(pack, 'heldout')
    heldout = list(segments(pack, iter(heldout_rows.read(heldout_ids(heldout_rows, max_rows)))))
    trigram = Trigram.fit(segments(pack, read))
    return {'byte trigram': trigram.bits_per_byte(heldout), 'xz -9': xz_bits_per_byte(heldout)}


def segments(pack: str, rows: Iterator[Row]) -> Iterator[bytes]:
    """The text of each segment: a document, or the part of one that a row holds."""
    tokenizer = load_tokenizer(pack)
    for row in rows:
        borders = np.flatnonzero(np.diff(row.segment_ids)) + 1
        for ids, segment in zip(np.split(row.tokens, borders), np.split(row.segment_ids, borders), strict=True):
            if segment[0] > 0:
                yield tokenizer.decode(ids)
