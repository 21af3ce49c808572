"""Text ↔ tokens. Three kinds, one interface:

    bytes                    a token a byte, and EOS: a vocabulary of 257
    bpe:SIZE                 byte-level BPE with SIZE tokens, trained on the corpus
    file:PATH/tokenizer.json an existing Hugging Face tokenizer: byte-level BPE, or BPE with byte fallback

Laws: `encode` never gives EOS, whatever the text says; for `bytes` and byte-level BPE without a normalizer,
decode(encode(text)) is the text's UTF-8, and token_bytes over encode(text) sums to its length.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import tokenizers
from etils import epath
from tokenizers import decoders, models, pre_tokenizers, trainers

from smelt_jax.storage.files import reach

FILE_NAME = 'tokenizer.json'
EOS_TEXT = '<|endoftext|>'
# In order of preference: where a chat model has several, the first ends a document and the last ones end a turn.
_EOS_NAMES = (
    EOS_TEXT, '<|end_of_text|>', '<|endofdocument|>', '<｜end▁of▁sentence｜>', '</s>', '<eos>', '<EOS>', '[EOS]',
    '<|eos|>', '<|im_end|>', '<end_of_turn>',
)  # fmt: skip

# Behind a newline that ends a line's printable ASCII, and between two words' ASCII letters.
CUTS = re.compile('\n(?<=[!-~]\n)(?=[!-~])|(?<=[A-Za-z])(?= [A-Za-z])')
# Splits of Llama 3 and of Qwen 2: as GPT-2's, which is ByteLevel's own, they put nothing of both sides of a cut together.
_SPLITS = tuple(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    + digits
    + r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
    for digits in ('{1,3}', '')
)


class Tokenizer(Protocol):
    """What packing, evaluation and generation use.

    Attributes:
      vocab: V; every id is below it.
      eos: the id that ends a document.
      token_bytes: int32[V], the bytes of text a token stands for; 0 for EOS and other specials.
      fingerprint: a hash of everything that decides which ids a text gets.
    """

    vocab: int
    eos: int
    token_bytes: np.ndarray
    fingerprint: str

    def encode(self, text: str) -> np.ndarray:
        """Ids of `text`, int32, no special token added or recognised."""

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """The bytes that ids stand for; specials stand for none."""

    def save(self, folder: epath.Path) -> None:
        """Writes what `load` needs besides the spec."""


class ByteTokenizer:
    """A token a byte of UTF-8; EOS is 256."""

    vocab = 257
    eos = 256
    fingerprint = hashlib.sha256(b'smelt_jax bytes, eos 256').hexdigest()
    token_bytes = np.array([1] * 256 + [0], np.int32)

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode('utf-8'), np.uint8).astype(np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return bytes(int(i) for i in ids if i != self.eos)

    def save(self, folder: epath.Path) -> None:
        pass


class SubwordTokenizer:
    """A BPE in the format of Hugging Face's tokenizer.json."""

    def __init__(self, text: str, where: str):
        """`text`: contents of a tokenizer.json; `where` names it in errors. ValueError if it cannot hold all text."""
        try:
            self._state = json.loads(text)
            eos = _find_eos(self._state, where)
            for added in self._state['added_tokens']:
                # encode_special_tokens below spells specials out; an EOS declared as a common token would slip through.
                added['special'] = added['special'] or added['content'] == eos
            self._state |= {'truncation': None, 'padding': None}  # both would change how many tokens a text has
            self._hf = _from_state(self._state)
        except (KeyError, TypeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f'{where} is not a Hugging Face tokenizer.json: {error!r}') from error
        self._hf.encode_special_tokens = True
        self._pieces = _pieces(self._state, self._hf.get_vocab(), where)
        self.eos: int = self._hf.get_vocab()[eos]
        self.vocab = len(self._pieces)
        self.token_bytes = np.array([len(piece) for piece in self._pieces], np.int32)
        canonical = json.dumps(self._state, sort_keys=True, ensure_ascii=True, separators=(',', ':'))
        self.fingerprint = hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        # The batch call skips offsets, which cost more than the ids.
        ids = np.array(self._hf.encode_batch_fast([text], add_special_tokens=False)[0].ids, np.int32)
        if (ids == self.eos).any():
            raise ValueError(f'the tokenizer reads its own end-of-document token in a text: {text[:80]!r}…')
        return ids

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return b''.join(self._pieces[int(i)] for i in ids)

    def save(self, folder: epath.Path) -> None:
        (folder / FILE_NAME).write_text(json.dumps(self._state, ensure_ascii=False))


def maker(spec: str) -> Callable[[Iterable[str]], Tokenizer]:
    """What makes the tokenizer that `spec` names of the texts that train it, if it is one to be trained. Texts need not be
    there yet: a bad spec, or a file that is no tokenizer, raises ValueError now."""
    kind, _, argument = spec.partition(':')
    if spec == 'bytes':
        return lambda texts: ByteTokenizer()
    if kind == 'bpe' and re.fullmatch('[0-9]{3,8}', argument) and int(argument) >= 257:
        return lambda texts: train_bpe(texts, int(argument))
    if kind == 'file' and argument:
        ready = _read_file(reach(argument).expanduser())
        return lambda texts: ready
    raise ValueError(f'tokenizer {spec!r}: expected bytes, bpe:SIZE (257 <= SIZE < 10**8) or file:PATH/tokenizer.json')


def load(spec: str, folder: epath.Path) -> Tokenizer:
    """The tokenizer that `make` made of `spec` and `save` wrote into `folder`."""
    return ByteTokenizer() if spec == 'bytes' else _read_file(folder / FILE_NAME)


def train_bpe(texts: Iterable[str], size: int) -> SubwordTokenizer:
    """Byte-level BPE of at most `size` tokens (fewer if the text has no more pairs), EOS among them. Deterministic."""
    hf = tokenizers.Tokenizer(models.BPE())
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hf.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[EOS_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    hf.train_from_iterator(texts, trainer=trainer)
    return SubwordTokenizer(hf.to_str(), 'the trained BPE')


def may_cut(tokenizer: Tokenizer) -> bool:
    """Whether encode(a + b) is known to be encode(a) and then encode(b) wherever CUTS finds the place between them: after the
    end of a line, and between words. False for what is not known to be so."""
    if not isinstance(tokenizer, SubwordTokenizer):
        return isinstance(tokenizer, ByteTokenizer)
    state = tokenizer._state
    model, steps = state['model'], _flat(state['pre_tokenizer'])
    plain = not any(model.get(key) for key in ('dropout', 'continuing_subword_prefix', 'end_of_word_suffix'))
    # NFC composes nothing with ASCII that follows it.
    plain &= state['normalizer'] is None or state['normalizer']['type'] == 'NFC'
    for added in state['added_tokens']:
        plain &= not (CUTS.search(added['content']) or '\n' in added['content'])
        plain &= not (added['lstrip'] or added['rstrip'] or added['single_word'])
    return plain and any(map(_splits, steps)) and all(step['type'] == 'Digits' or _splits(step, True) for step in steps)


def _splits(step: dict[str, Any], or_nothing: bool = False) -> bool:
    """Whether a step of pre-tokenizing parts texts at CUTS, the same whatever lies beyond; `or_nothing`: or parts none."""
    if step['type'] == 'Split':
        return step['pattern'].get('Regex') in _SPLITS and step['behavior'] == 'Isolated' and not step['invert']
    return step['type'] == 'ByteLevel' and not step['add_prefix_space'] and (or_nothing or step.get('use_regex', True))


def _read_file(path: epath.Path) -> SubwordTokenizer:
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f'cannot read the tokenizer {path}: {error}; bring it back, or name one that exists'
        ) from error
    return SubwordTokenizer(text, str(path))


def _from_state(state: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state))
    except Exception as error:  # the only class that the library raises
        raise TypeError(str(error)) from error


def _find_eos(state: dict[str, Any], where: str) -> str:
    added = [token['content'] for token in state['added_tokens']]
    known = set(added) | set(state['model']['vocab'])
    for name in _EOS_NAMES:
        if name in known:
            return name
    raise ValueError(f'{where} has no end-of-document token of a usual name; its special tokens: {added}')


def _pieces(state: dict[str, Any], vocab: dict[str, int], where: str) -> list[bytes]:
    """The bytes of every id, b'' for specials and for ids that no token has."""
    parts = {entry['type'] for key in ('pre_tokenizer', 'decoder') for entry in _flat(state[key])}
    if state['model']['type'] == 'BPE' and 'ByteLevel' in parts:
        needed = list(_byte_of_char())
        of_token = _byte_level
    elif state['model']['type'] == 'BPE' and 'ByteFallback' in parts:
        needed = [f'<0x{byte:02X}>' for byte in range(256)]
        of_token = _byte_fallback
    else:
        raise ValueError(f'{where} is neither byte-level BPE nor BPE with byte fallback: it would lose some texts')
    missing = [token for token in needed if token not in vocab]
    if missing:
        raise ValueError(f'{where} has no token for {len(missing)} of the 256 bytes: it would lose some texts')
    added = {token['content']: token for token in state['added_tokens']}
    pieces = [b''] * (max(vocab.values()) + 1)
    for token, index in vocab.items():
        if token in added:
            pieces[index] = b'' if added[token]['special'] else token.encode()
        else:
            pieces[index] = of_token(token)
    return pieces


def _flat(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a pre-tokenizer or decoder, sequences opened."""
    if part is None:
        return []
    steps = part.get('pretokenizers') or part.get('decoders')
    return [part] if steps is None else [inner for step in steps for inner in _flat(step)]


def _byte_level(token: str) -> bytes:
    table = _byte_of_char()
    return bytes(table[char] for char in token) if all(char in table for char in token) else token.encode()


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and token.startswith('<0x') and token.endswith('>'):
        return bytes([int(token[3:5], 16)])
    return token.replace('▁', ' ').encode()


@functools.cache
def _byte_of_char() -> dict[str, int]:
    """Byte-level BPE spells each byte as one printable character: Latin-1 where printable, from U+0100 on elsewhere."""
    printable = [*range(ord('!'), ord('~') + 1), *range(ord('¡'), ord('¬') + 1), *range(ord('®'), ord('ÿ') + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
