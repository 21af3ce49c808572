"""Text as it comes: whole characters, nothing of a stop, nothing taken back."""

import itertools
import random

import pytest

from smelt_jax.generate.text import InOrder, Stream, Until, before

TEXTS = [
    ('plain', ()),
    ('a\nb\nc', ('\n',)),
    ('grüße, 世界 🎉!', ()),
    ('grüße, 世界 🎉!', ('界 ',)),
    ('ababac rest', ('abac',)),
    ('xEND', ('END', 'ENDS')),
    ('no stop, though near: EN', ('END',)),
    ('', ('x',)),
    ('one two', ('two', 'e t')),
]


@pytest.mark.parametrize(('text', 'stops'), TEXTS)
@pytest.mark.parametrize('seed', range(5))
def test_pieces_join_to_what_is_before_the_stop(text: str, stops: tuple[str, ...], seed: int) -> None:
    data, stream, until, given = text.encode(), Stream(stops), Until(stops), []
    random.seed(seed)
    cuts = sorted({0, len(data), *(random.randrange(len(data) + 1) for _ in range(6))})
    for start, end in itertools.pairwise(cuts):
        given.append(stream.add(data[start:end]))
        if until.add(data[start:end]):
            break
    given.append(stream.add(b'', last=True))
    first = min((text.find(stop) for stop in stops if stop in text), default=len(text))
    assert ''.join(given) == text[:first] == before(until.data, stops).decode()
    assert '�' not in ''.join(given)


def test_every_byte_by_itself() -> None:
    stream = Stream()
    assert [stream.add(bytes([byte])) for byte in 'é🎉a'.encode()] == ['', 'é', '', '', '', '🎉', 'a']


def test_what_may_become_a_stop_is_held_back_and_given_if_it_does_not() -> None:
    stream = Stream(('STOP',))
    assert [stream.add(piece) for piece in (b'go ST', b'O', b'RY S', b'TOP', b'')] == ['go ', '', 'STORY ', '', '']
    assert stream.add(b'', last=True) == ''


def test_a_text_that_ends_within_a_character_is_mended() -> None:
    stream = Stream()
    assert stream.add(b'a\xc3') + stream.add(b'', last=True) == 'a�'
    assert Stream().add(b'a\xffb', last=True) == 'a�b'


def test_texts_are_printed_in_order() -> None:
    shown: list[str] = []
    screen = InOrder(['one', 'two', 'three'], shown.append)
    assert shown == []  # an error may come first
    screen.add(1, 'b', False)
    screen.add(2, 'c', True)
    assert shown == []
    screen.add(0, 'a', False)
    assert ''.join(shown) == 'one\na'
    screen.add(0, '!', True)
    assert ''.join(shown) == 'one\na!\ntwo\nb'
    screen.add(1, '', True)
    assert ''.join(shown) == 'one\na!\ntwo\nb\nthree\nc\n'


def test_one_text_has_no_heading() -> None:
    shown: list[str] = []
    InOrder([''], shown.append).add(0, 'a', True)
    assert ''.join(shown) == 'a\n'
