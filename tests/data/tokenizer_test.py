"""Tokenizers: nothing is lost, EOS is ours alone, and each one knows who it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from etils import epath
from hypothesis import given
from hypothesis import strategies as st
from packs import sentences
from tokenizers import decoders, models, pre_tokenizers

from smelt_jax.data import tokenizer

TEXTS = [*sentences(60), Path(tokenizer.__file__).read_text(), 'a <|endoftext|> b', '<|endoftext|>' * 3]
BPE = tokenizer.train_bpe(TEXTS, 400)
BOTH = pytest.mark.parametrize('made', [tokenizer.ByteTokenizer(), BPE], ids=['bytes', 'bpe'])


@BOTH
@given(text=st.text(max_size=200) | st.sampled_from(TEXTS))
def test_decode_undoes_encode_exactly(made: tokenizer.Tokenizer, text: str) -> None:
    ids = made.encode(text)
    assert made.decode(ids) == text.encode()
    assert made.token_bytes[ids].sum() == len(text.encode())
    assert ids.max(initial=0) < made.vocab == len(made.token_bytes)


@BOTH
def test_eos_stands_for_no_text(made: tokenizer.Tokenizer) -> None:
    assert made.token_bytes[made.eos] == 0
    assert made.decode([made.eos]) == b''
    assert (np.delete(made.token_bytes, made.eos) > 0).all()


@BOTH
def test_the_name_of_eos_in_a_text_is_text(made: tokenizer.Tokenizer) -> None:
    ids = made.encode('a <|endoftext|> b')
    assert made.eos not in ids
    assert made.decode(ids) == b'a <|endoftext|> b'


def test_training_is_deterministic_and_of_the_size_asked_for() -> None:
    assert BPE.vocab == 400
    assert tokenizer.train_bpe(TEXTS, 400).fingerprint == BPE.fingerprint
    assert tokenizer.train_bpe(TEXTS[1:], 400).fingerprint != BPE.fingerprint
    assert tokenizer.train_bpe(TEXTS, 401).fingerprint != BPE.fingerprint


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    BPE.save(epath.Path(tmp_path))
    for again in (
        tokenizer.load('bpe:400', epath.Path(tmp_path)),
        tokenizer.maker(f'file:{tmp_path}/tokenizer.json')([]),
    ):
        assert again.fingerprint == BPE.fingerprint
        assert [again.encode(text).tolist() for text in TEXTS] == [BPE.encode(text).tolist() for text in TEXTS]


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> str:
    """A spec of the trained BPE after `edit` of its state."""
    BPE.save(epath.Path(path))
    state = json.loads((path / 'tokenizer.json').read_text())
    edit(state)
    (path / 'tokenizer.json').write_text(json.dumps(state))
    return f'file:{path}/tokenizer.json'


def test_an_eos_declared_as_a_common_token_is_still_never_read_in_a_text(tmp_path: Path) -> None:
    made = tokenizer.maker(edited(tmp_path, lambda state: state['added_tokens'][0].update(special=False)))([])
    assert made.decode(made.encode('a <|endoftext|> b')) == b'a <|endoftext|> b'


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    def edit(state: dict[str, Any]) -> None:
        state['truncation'] = {'direction': 'Right', 'max_length': 4, 'strategy': 'LongestFirst', 'stride': 0}
        state['padding'] = {
            'strategy': {'Fixed': 64}, 'direction': 'Right', 'pad_to_multiple_of': None, 'pad_id': 0, 'pad_type_id': 0,
            'pad_token': '<|endoftext|>',
        }  # fmt: skip

    made = tokenizer.maker(edited(tmp_path, edit))([])
    assert made.decode(made.encode(TEXTS[0])) == TEXTS[0].encode()


def test_a_file_without_a_usual_eos_lists_what_it_has(tmp_path: Path) -> None:
    def edit(state: dict[str, Any]) -> None:
        state['added_tokens'][0]['content'] = '<STOP>'
        state['model']['vocab']['<STOP>'] = state['model']['vocab'].pop('<|endoftext|>')

    with pytest.raises(ValueError, match=r"no end-of-document token .*\['<STOP>'\]"):
        tokenizer.maker(edited(tmp_path, edit))([])


def test_a_file_that_would_lose_text_is_refused(tmp_path: Path) -> None:
    def without_a_byte(state: dict[str, Any]) -> None:
        state['model']['vocab'].pop('Ā')
        state['model']['merges'] = []

    with pytest.raises(ValueError, match='no token for 1 of the 256 bytes'):
        tokenizer.maker(edited(tmp_path, without_a_byte))([])
    words = tokenizers.Tokenizer(models.WordLevel({'a': 0, '[UNK]': 1, '</s>': 2}, unk_token='[UNK]'))
    words.save(str(tmp_path / 'words.json'))
    with pytest.raises(ValueError, match=r'words\.json is neither byte-level BPE nor'):
        tokenizer.maker(f'file:{tmp_path}/words.json')([])


def test_byte_fallback_counts_the_bytes_of_each_token(tmp_path: Path) -> None:
    vocab = {
        token: i for i, token in enumerate(['<unk>', '</s>', *(f'<0x{b:02X}>' for b in range(256)), '▁', 'a', '▁a'])
    }
    made = tokenizers.Tokenizer(models.BPE(vocab, [('▁', 'a')], byte_fallback=True, unk_token='<unk>', fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='never', split=False)
    made.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(['<unk>', '</s>'])
    made.save(str(tmp_path / 'sp.json'))
    loaded = tokenizer.maker(f'file:{tmp_path}/sp.json')([])
    ids = loaded.encode('a a</s>é a')
    assert loaded.eos == 1
    assert loaded.decode(ids) == 'a a</s>é a'.encode()
    assert loaded.token_bytes[ids].sum() == len('a a</s>é a'.encode())


@pytest.mark.parametrize('spec', ['byte', 'bpe', 'bpe:', 'bpe:256', 'bpe:4k', 'file:', 'file:/none/tokenizer.json', ''])
def test_a_bad_spec_is_an_error(spec: str) -> None:
    with pytest.raises(ValueError, match='tokenizer'):
        tokenizer.maker(spec)(TEXTS)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    for text in ['{}', 'null', '[1]', 'x', '{"added_tokens": [], "model": {"vocab": {"</s>": 0}}}']:
        (tmp_path / 'tokenizer.json').write_text(text)
        with pytest.raises(ValueError, match=r'tokenizer\.json'):
            tokenizer.maker(f'file:{tmp_path}/tokenizer.json')([])
