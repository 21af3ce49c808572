"""manifest.json: what a pack holds, how it came about, and whether it is whole.

A pack is a folder:

    manifest.json                          written last; without it there is no pack
    tokenizer.json                         unless the tokenizer is `bytes`
    train-00000-of-00002.array_record …    rows (records.py) and a seal (shards.py)
    heldout-00000-of-00001.array_record …
"""

import dataclasses
import hashlib
import json
from typing import Any

from etils import epath

from smelt_jax.data import tokenizer
from smelt_jax.data.shards import Shard, check_shards
from smelt_jax.storage.files import is_local, reach, write_atomically

FORMAT = 'smelt_jax.pack'
VERSION = 2
FILE_NAME = 'manifest.json'
SPLITS = ('train', 'heldout')
_CHECKSUM = 'checksum'


@dataclasses.dataclass(frozen=True)
class Source:
    """A source's share of a split. A source id is the index in the split's table, the same in both splits.

    `bytes` counts UTF-8 text; `tokens` counts each document's EOS too.
    """

    name: str
    domain: str
    documents: int
    tokens: int
    bytes: int

    @property
    def label(self) -> str:
        """DOMAIN/NAME: two domains may have sources of one name."""
        return f'{self.domain}/{self.name}'


@dataclasses.dataclass(frozen=True)
class Split:
    """Train or heldout. `mean_attended_keys` is T̄ under the document mask (records.SplitWriter)."""

    rows: int
    documents: int
    tokens: int
    bytes: int
    mean_attended_keys: float
    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Everything known about a pack.

    Attributes:
      format, version: of this file and the records; a reader refuses others.
      written_by: version of smelt_jax.
      tokenizer, tokenizer_fingerprint, vocab, eos: spec, identity, V, and the id that ends a document.
      row_tokens: T; a row stores T + 1 tokens.
      seed: order of the documents.
      dropped_duplicates, empty, over_budget: documents left out, and why.
      replaced_utf8: invalid UTF-8 sequences that became U+FFFD.
      skipped: files of the `local` corpus that could not be read.
      inputs: {'config': …, 'files': …}, what decides the contents; compared when packing again.
      fingerprint: of the contents: tokenizer, T, sources and every record, however they are cut into shards.
      train, heldout: the splits.
    """

    format: str
    version: int
    written_by: str
    tokenizer: str
    tokenizer_fingerprint: str
    vocab: int
    eos: int
    row_tokens: int
    seed: int
    dropped_duplicates: int
    empty: int
    over_budget: int
    replaced_utf8: int
    skipped: int
    inputs: dict[str, Any]
    inputs_fingerprint: str
    fingerprint: str
    train: Split
    heldout: Split

    def split(self, name: str) -> Split:
        """The split called `name`. ValueError if there is none of that name."""
        if name not in SPLITS:
            raise ValueError(f'split {name!r}: a pack has {" and ".join(SPLITS)}')
        return self.train if name == 'train' else self.heldout


def fingerprint(value: Any) -> str:
    """sha256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def save(manifest: Manifest, folder: epath.Path) -> None:
    """Writes manifest.json: it is there whole or not at all. Its last key is a checksum of the others."""
    values = json.loads(json.dumps(dataclasses.asdict(manifest)))
    text = json.dumps(values | {_CHECKSUM: fingerprint(values)}, indent=1)
    write_atomically(folder / FILE_NAME, text + '\n')


def load_manifest(folder: epath.PathLike) -> Manifest:
    """Reads manifest.json alone. ValueError if it is missing, unreadable, foreign, of another format version, or changed
    since it was written."""
    path, remedy = reach(folder) / FILE_NAME, 'restore it from a copy, or delete the folder and pack again'
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f'{folder} is no pack: it has no {FILE_NAME}; run smelt pack --out={folder}') from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f'cannot read {path}: {error}; {remedy}') from error
    if not isinstance(values, dict) or values.get('format') != FORMAT:
        raise ValueError(f'{path} was not written by smelt pack; name another folder')
    if values.get('version') != VERSION:
        raise ValueError(
            f'{path} has format version {values.get("version")}, this smelt_jax reads {VERSION}; '
            f'it was written by smelt_jax {values.get("written_by")}: use that version, or pack again'
        )
    if values.pop(_CHECKSUM, None) != fingerprint(values):
        raise ValueError(f'{path} is not as smelt pack wrote it: edited or damaged; {remedy}')
    return Manifest(**(values | {name: _split(values[name]) for name in SPLITS}))


def open_pack(
    folder: epath.PathLike, tokenizer_fingerprint: str | None = None, pack_fingerprint: str | None = None
) -> Manifest:
    """The manifest of a whole pack: every shard is there, and is the one that was packed (shards.py). Rows are not read.

    Args:
      folder: what `pack` wrote; on a disk or mounted.
      tokenizer_fingerprint: if given, the only tokenizer that will do, e.g. the one a checkpoint was trained with.
      pack_fingerprint: if given, the only pack that will do, e.g. the one that was opened before in this place.

    Raises:
      ValueError: as `load_manifest`; the folder is in a bucket; a shard is missing, truncated or of another pack; the tokenizer
        is gone or another one; it is not the pack asked for.
    """
    if not is_local(folder):
        # One request a row would starve any accelerator, and array_record writes to no bucket.
        raise ValueError(f'{folder}: rows are read from a disk; copy the pack to one, or mount the bucket')
    manifest = load_manifest(folder)
    if pack_fingerprint not in (None, manifest.fingerprint):
        raise ValueError(
            f'{folder} was packed anew: it is pack {manifest.fingerprint[:12]} now, not {str(pack_fingerprint)[:12]}; '
            f'bring that one back'
        )
    if tokenizer_fingerprint not in (None, manifest.tokenizer_fingerprint):
        raise ValueError(
            f'{folder} was packed with tokenizer {manifest.tokenizer} ({manifest.tokenizer_fingerprint[:12]}), '
            f'not with the one asked for ({str(tokenizer_fingerprint)[:12]}); pack again with that one'
        )
    check_shards(folder, [shard for name in SPLITS for shard in manifest.split(name).shards])
    _load_tokenizer(folder, manifest)
    return manifest


def load_tokenizer(folder: epath.PathLike) -> tokenizer.Tokenizer:
    """The tokenizer a pack was made with. ValueError if the one in the folder is another."""
    return _load_tokenizer(folder, load_manifest(folder))


def _load_tokenizer(folder: epath.PathLike, manifest: Manifest) -> tokenizer.Tokenizer:
    loaded = tokenizer.load(manifest.tokenizer, epath.Path(folder))
    if loaded.fingerprint != manifest.tokenizer_fingerprint:
        raise ValueError(
            f'{folder}/{tokenizer.FILE_NAME} ({loaded.fingerprint[:12]}) is not the tokenizer this pack was made with '
            f'({manifest.tokenizer_fingerprint[:12]}); restore it, or pack again'
        )
    return loaded


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Lines `key: old -> new` for two `Manifest.inputs`; empty if they are the same."""
    lines = []
    for part in ('config', 'files'):
        before, after = old[part], new[part]
        for key in sorted(before.keys() | after.keys()):
            left, right = before.get(key, 'absent'), after.get(key, 'absent')
            if left != right:
                lines.append(f'{key}: {left} -> {right}')
    return lines


def _split(values: dict[str, Any]) -> Split:
    values['sources'] = tuple(Source(**source) for source in values['sources'])
    values['shards'] = tuple(Shard(**shard) for shard in values['shards'])
    return Split(**values)
