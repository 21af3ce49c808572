"""Tokens back to text while they come: no half characters, nothing of a stop text."""

import codecs
from collections.abc import Callable, Sequence


def encodable(text: str, what: str) -> str:
    """The text. ValueError, naming `what`, if it is none: as of bytes on the command line that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f'{what} is no UTF-8 text: {text!r:.60}; mend it') from None
    return text


class Until:
    """Bytes that come piece by piece, until one of some texts is in them.

    Attributes:
      data: all bytes so far.
      found: where the text that ended them begins; None while none has come up.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop.encode() for stop in stops]
        self.data = b''
        self.found: int | None = None

    def add(self, piece: bytes) -> bool:
        """Adds some bytes. Whether a stop text is in; nothing is to be added after that."""
        old, self.data = len(self.data), self.data + piece
        places = [self.data.find(stop, max(0, old - len(stop) + 1)) for stop in self._stops]
        self.found = min((place for place in places if place >= 0), default=None)
        return self.found is not None

    @property
    def sure(self) -> bytes:
        """The bytes before the stop text; while none has come up, those that cannot become part of one."""
        if self.found is not None:
            return self.data[: self.found]
        held = (size for stop in self._stops for size in range(1, len(stop)) if self.data.endswith(stop[:size]))
        return self.data[: len(self.data) - max(held, default=0)]


def before(data: bytes, stops: Sequence[str]) -> bytes:
    """`data` up to the first stop text in it."""
    until = Until(stops)
    until.add(data)
    return data if until.found is None else data[: until.found]


class Stream:
    """Bytes to text that can be printed. Laws: what it gives, joined, is `before(all bytes, stops)` as UTF-8, of which broken
    sequences are U+FFFD; no piece ends within a character, and nothing has to be taken back."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._until = Until(stops)
        self._decode = codecs.getincrementaldecoder('utf-8')(errors='replace').decode
        self._given = 0

    def add(self, piece: bytes, last: bool = False) -> str:
        """The text that these bytes make certain; with `last`, all that is left."""
        if self._until.found is None:
            self._until.add(piece)
        cut = self._until.data if last and self._until.found is None else self._until.sure
        text = self._decode(cut[self._given :], last)
        self._given = len(cut)
        return text


class InOrder:
    """Prints texts that grow side by side one after the other: the first that has not ended as it comes, the others when it is
    their turn."""

    def __init__(self, headings: Sequence[str], write: Callable[[str], None]) -> None:
        """`headings` of the texts, each on a line of its own; '' for none."""
        self._headings, self._write = headings, write
        self._waiting, self._ended = [''] * len(headings), [False] * len(headings)
        self._now, self._headed = 0, False

    def add(self, index: int, text: str, end: bool) -> None:
        """More of a text; with `end`, the last of it."""
        self._waiting[index] += text
        self._ended[index] = self._ended[index] or end
        while self._now < len(self._headings) and (self._waiting[self._now] or self._ended[self._now]):
            if self._headings[self._now] and not self._headed:
                self._write(self._headings[self._now] + '\n')
            self._headed = True
            if self._waiting[self._now]:
                self._write(self._waiting[self._now])
                self._waiting[self._now] = ''
            if not self._ended[self._now]:
                break
            self._write('\n')
            self._now, self._headed = self._now + 1, False
