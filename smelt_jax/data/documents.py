"""A document, and what is decided from its text alone: its identity, its split, its place in a budget, its order.

All four come from one hash of the text. Independent bytes of it serve each decision, so that none biases another: were
the split and the budget read from the same bytes, a tight budget would take the held-out documents first.
"""

import dataclasses
import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator

_SURROGATE = re.compile('[\ud800-\udfff]')
_REPLACEMENT = '\N{REPLACEMENT CHARACTER}'


@dataclasses.dataclass(frozen=True)
class Document:
    """A text with where it comes from. `domain` is the coarse label (Code, Web, …), `source` the fine one."""

    text: str
    domain: str
    source: str


@dataclasses.dataclass
class Tally:
    """What reading left out or changed, counted while it goes.

    Attributes:
      empty: documents without any text.
      duplicates: documents whose text had been read before.
      replaced_utf8: invalid UTF-8 sequences (and lone surrogates) that became U+FFFD.
      skipped: files of the `local` corpus that could not be read.
    """

    empty: int = 0
    duplicates: int = 0
    replaced_utf8: int = 0
    skipped: int = 0


def decode_utf8(raw: bytes, where: str, offset: int, invalid_utf8: str, tally: Tally) -> str:
    """Bytes → text. `where` and `offset` (bytes before `raw` in that file) name the place.

    Invalid sequences become U+FFFD and are counted in `tally` if `invalid_utf8` is 'replace'; a ValueError that names
    file and byte offset if it is 'refuse'.
    """
    try:
        return raw.decode('utf-8')
    except UnicodeDecodeError as error:
        if invalid_utf8 == 'refuse':
            raise ValueError(
                f'{where}: invalid UTF-8 at byte {offset + error.start}; repair the file, or set invalid_utf8=replace'
            ) from None
    text = raw.decode('utf-8', 'replace')
    tally.replaced_utf8 += text.count(_REPLACEMENT) - raw.count(_REPLACEMENT.encode())
    return text


def without_surrogates(text: str, where: str, invalid_utf8: str, tally: Tally) -> str:
    """`text` as something UTF-8 can hold: JSON escapes and e-mail headers can carry lone surrogates, UTF-8 cannot."""
    if not _SURROGATE.search(text):
        return text
    if invalid_utf8 == 'refuse':
        raise ValueError(f'{where}: text holds a lone surrogate; repair it, or set invalid_utf8=replace')
    text, count = _SURROGATE.subn(_REPLACEMENT, text)
    tally.replaced_utf8 += count
    return text


def digest(text: bytes) -> bytes:
    """The document's identity: 16 bytes of BLAKE2b of its UTF-8 text."""
    return hashlib.blake2b(text, digest_size=16).digest()


def is_heldout(identity: bytes, fraction: float) -> bool:
    """Whether a document is held out. A function of its text alone: neither seed nor the rest of the corpus moves it."""
    return int.from_bytes(identity[8:]) < fraction * 2**64


def order_key(identity: bytes, seed: int) -> bytes:
    """Documents are packed in ascending order of this key: a shuffle that needs no memory, another one for each seed."""
    return hashlib.blake2b(identity, digest_size=16, key=str(seed).encode()).digest()


def unique(documents: Iterable[Document], tally: Tally) -> Iterator[tuple[Document, bytes, bytes]]:
    """Yields (document, its UTF-8 text, its digest), the first of each text, never an empty one.

    Holds 16 bytes (about 100 with Python's overhead) for each document, and no text.
    """
    seen: set[bytes] = set()
    for document in documents:
        if not document.text:
            tally.empty += 1
            continue
        raw = document.text.encode('utf-8')
        identity = digest(raw)
        if identity in seen:
            tally.duplicates += 1
            continue
        seen.add(identity)
        yield document, raw, identity


class Budget:
    """At most `max_bytes` of text from a domain: its documents in ascending hash order, up to the last that fits.

    Documents larger than the whole budget never count. Streaming: documents may come in any order, the choice is the
    same; memory is one number pair for each document within the budget.
    """

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.limit = 2**64  # ranks below it are within the budget
        self._taken: list[tuple[int, int]] = []
        self._total = 0

    @staticmethod
    def rank(identity: bytes) -> int:
        """Place in hash order, in [0, 2^64)."""
        return int.from_bytes(identity[:8])

    def offer(self, identity: bytes, size: int) -> bool:
        """False if the document is already known to be outside. True may be withdrawn: `limit` is final at the end."""
        rank = self.rank(identity)
        if size > self.max_bytes or rank >= self.limit:
            return False
        heapq.heappush(self._taken, (-rank, size))
        self._total += size
        while self._total > self.max_bytes:
            worst, dropped = heapq.heappop(self._taken)
            self.limit = -worst
            self._total -= dropped
        return rank < self.limit
