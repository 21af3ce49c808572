"""What a language model's bits per byte are held against: a byte trigram, and the compressor xz.

A trigram knows spelling and little else: a model that has learned more than letter statistics from the same training text
lies below it. xz sees no training text and finds long repeats inside the held-out text, which a model that starts afresh
with every document cannot use: the two are marks on the scale, not rivals under equal conditions.

Neither counts the end of a document, which a language model does predict (its EOS token): a few bits a document in favour of
what stands here.
"""

import lzma
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

BYTES = 256
BLOCK = 1 << 22  # bytes that are counted or scored at one time; a longer document is a block of its own


class Trigram:
    """An interpolated trigram over bytes, smoothed by Witten–Bell.

        P(c | h) = (n(hc) + t(h) · P(c | h')) / (n(h) + t(h))

    n counts occurrences, t(h) the different bytes that followed h, h' is h without its first byte; below the empty context
    stands 1/256. So every byte has a positive probability, the 256 of a context sum to 1, and a context that was never seen
    leaves the word to the shorter one. Contexts end at the border of a document: its first byte is predicted from none, its
    second from one.

    Source: Witten and Bell 1991, "The zero-frequency problem", method C; interpolated as in Chen and Goodman 1998,
    "An empirical study of smoothing techniques for language modeling", section 2.6.
    """

    def __init__(self, counts: Sequence[np.ndarray]) -> None:
        """
        Args:
          counts: of single bytes [256], of pairs [256, 256] and of triples [256, 256, 256] (134 MB of int64).
        """
        self._counts = counts
        self._totals = [array.sum(-1) for array in counts]
        self._types = [np.count_nonzero(array, axis=-1) for array in counts]

    @classmethod
    def fit(cls, documents: Iterable[bytes]) -> 'Trigram':
        """Counts documents. Fitted on no text it is uniform: 8 bits per byte."""
        flat = [np.zeros(BYTES**order, np.int64) for order in (1, 2, 3)]
        for text, age in _blocks(documents):
            for order, counts in enumerate(flat, start=1):
                np.add.at(counts, _ngrams(text, age, order), 1)  # bincount would make a second table a block
        return cls([counts.reshape((BYTES,) * order) for order, counts in enumerate(flat, start=1)])

    def probabilities(self, context: bytes) -> np.ndarray:
        """[256] probabilities of the byte after `context`, the document so far. Its last two bytes matter."""
        known = tuple(context[-2:])
        mixed = np.full(BYTES, 1 / BYTES)
        for order in range(len(known) + 1):
            mixed = self._mix(order, known[len(known) - order :], (), mixed)
        return mixed

    def bits_per_byte(self, documents: Iterable[bytes]) -> float:
        """Mean of −log2 P over all bytes of `documents`. Raises ValueError if they have none."""
        bits, count = 0.0, 0
        for text, age in _blocks(documents):
            mixed = np.full(len(text), 1 / BYTES)
            for order in range(3):
                at = np.flatnonzero(age >= order)
                context = tuple(text[at - back] for back in range(order, 0, -1))
                mixed[at] = self._mix(order, context, (text[at],), mixed[at])
            bits -= float(np.log2(mixed).sum())
            count += len(text)
        return bits / _some(count)

    def _mix(self, order: int, context: tuple, byte: tuple, lower: np.ndarray) -> np.ndarray:
        """The formula above: contexts of `order` bytes over the probabilities `lower` of the shorter ones."""
        counts, total, types = (
            self._counts[order][context + byte],
            self._totals[order][context],
            self._types[order][context],
        )
        return np.where(total > 0, (counts + types * lower) / np.maximum(total + types, 1), lower)


def xz_bits_per_byte(documents: Iterable[bytes]) -> float:
    """Compressed bits over bytes, of all documents one after the other in one stream, as `xz -9` makes it.

    xz sees no training text; the stream's header and index, about 70 bytes, are counted. It takes up to 700 MB of memory.
    Raises ValueError if the documents have no byte.
    """
    compressor = lzma.LZMACompressor(preset=9)
    count = compressed = 0
    for document in documents:
        count += len(document)
        compressed += len(compressor.compress(document))
    compressed += len(compressor.flush())
    return 8 * compressed / _some(count)


def _some(count: int) -> int:
    if not count:
        raise ValueError('no held-out text: bits per byte of no bytes; hold out more documents')
    return count


def _blocks(documents: Iterable[bytes]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Whole documents, joined: the bytes as int64, and how many bytes of its document precede each, 2 meaning 2 or more."""
    held: list[bytes] = []
    size = 0
    for document in documents:
        if document:
            held.append(document)
            size += len(document)
        if size >= BLOCK:
            yield _block(held)
            held, size = [], 0
    if held:
        yield _block(held)


def _block(documents: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    text = np.frombuffer(b''.join(documents), np.uint8).astype(np.int64)
    starts = np.cumsum([0, *map(len, documents[:-1])])
    age = np.full(len(text), 2, np.int8)
    age[starts[starts + 1 < len(text)] + 1] = 1
    age[starts] = 0  # after the seconds: the second byte of a document of one is the next one's first
    return text, age


def _ngrams(text: np.ndarray, age: np.ndarray, order: int) -> np.ndarray:
    """The index of every run of `order` bytes that lies inside a document, its last byte the fastest digit."""
    index = text[order - 1 :].copy()
    for back in range(1, order):
        index += text[order - 1 - back : len(text) - back] * BYTES**back
    return index[age[order - 1 :] >= order - 1]
