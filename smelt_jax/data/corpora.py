"""Where documents come from. A corpus is named `READER:WHERE`:

    local             the text every Python machine has (local.py)
    jsonl:GLOB        JSON lines, plain or .gz, with fields text, domain, source
    parquet:GLOB      the same fields as columns
    text:FOLDER       a document a file, laid out as FOLDER/DOMAIN/SOURCE/…
    made:NAME         made-up text (made.py), NAME[+NAME…][:DOCUMENTS of each]; the domain is Made, the source NAME

Where `domain` or `source` is missing, the name of the file's folder is the domain and the file's name up to its first
dot is the source; in a text folder, a missing level takes the name of the folder above it. Globs and folders are
etils.epath paths, so gs:// works as a disk does. Files are read in sorted order.
"""

import gzip
import hashlib
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etils import epath

from smelt_jax.data import local, made
from smelt_jax.data.documents import Document, Tally, decode_utf8, without_surrogates
from smelt_jax.storage.files import is_local, reach

READERS = ('local', 'jsonl', 'text', 'parquet', 'made')
_HASH_CHUNK = 1 << 20
_HASH_DOCUMENTS = 256


def read(corpora: Sequence[str], invalid_utf8: str, tally: Tally, on_file: Callable[[str], None]) -> Iterator[Document]:
    """All documents of `corpora`, in order; duplicates and empty ones among them.

    Args:
      corpora: specs as above.
      invalid_utf8: 'replace' or 'refuse'. The `local` corpus always skips what it cannot read, and counts it.
      tally: counts what was replaced or skipped.
      on_file: called with a name whenever a file (or `local`, or a `made` corpus) begins.

    Raises:
      ValueError: an unknown reader, no such file, an unreadable or malformed file; names the place and the remedy.
    """
    for spec in corpora:
        reader = _reader(spec)
        if reader == 'local':
            on_file('local')
            yield from local.documents(tally)
        elif reader == 'made':
            on_file(spec)
            names, count = _made(spec)
            yield from (Document(made.document(name, i), 'Made', name) for name in names for i in range(count))
        else:
            root, paths = _files(spec)
            for path in paths:
                on_file(str(path))
                try:
                    yield from _FILE_READERS[reader](path, root, invalid_utf8, tally)
                except (OSError, EOFError, zlib.error) as error:
                    raise _unreadable(path, error) from error


def identity(corpora: Sequence[str]) -> dict[str, str]:
    """What `read` would read: a hash of each file's contents by its folder and name; versions for `local`; for made-up text
    a hash of the first documents, since each follows from its name and index.

    The same files in another place have the same identity. Raises ValueError as `read` does for missing files.
    """
    found: dict[str, str] = {}
    for index, spec in enumerate(corpora):
        if _reader(spec) == 'local':
            found |= local.identity()
            continue
        if _reader(spec) == 'made':
            names, count = _made(spec)
            for name in names:
                texts = '\0'.join(made.document(name, i) for i in range(min(count, _HASH_DOCUMENTS)))
                found[f'made[{index}]/{name}:{count}'] = hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()
            continue
        root, paths = _files(spec)
        for path in paths:
            # From the folder above on: its name may be a domain. Numbered: two corpora may have a name in common.
            name = '/'.join((root.resolve().name, *path.relative_to(root).parts))
            found[f'{_reader(spec)}[{index}]/{name}'] = file_hash(path)
    return found


def file_hash(path: epath.Path) -> str:
    """BLAKE2b of a file's contents. Raises ValueError if it cannot be read."""
    state = hashlib.blake2b(digest_size=16)
    try:
        with path.open('rb') as file:
            while chunk := file.read(_HASH_CHUNK):
                state.update(chunk)
    except OSError as error:
        raise _unreadable(path, error) from error
    return state.hexdigest()


def _reader(spec: str) -> str:
    reader, _, where = spec.partition(':')
    if reader not in READERS or (reader == 'local') != (where == ''):
        raise ValueError(f'corpus {spec!r}: expected one of local, jsonl:GLOB, text:FOLDER, parquet:GLOB, made:NAME')
    return reader


def _made(spec: str) -> tuple[tuple[str, ...], int]:
    try:
        return made.asked(spec.partition(':')[2])
    except ValueError as error:
        raise ValueError(f'corpus {spec!r}: {error}') from None


def _files(spec: str) -> tuple[epath.Path, list[epath.Path]]:
    """(folder the relative names start from, the files in order)."""
    reader, _, where = spec.partition(':')
    path = reach(where).expanduser()
    if reader == 'text':
        if not path.is_dir():
            raise ValueError(f'corpus {spec!r}: {path} is not a folder; name a folder of text files')
        root, paths = path, _walk(path)
    else:
        parts = path.parts
        fixed = next((i for i, part in enumerate(parts) if any(mark in part for mark in '*?[')), len(parts) - 1)
        root, pattern = epath.Path(*parts[:fixed]), '/'.join(parts[fixed:])
        if '**' in pattern and not is_local(root):
            raise ValueError(f'corpus {spec!r}: ** needs a listing of the whole bucket; use * for each folder')
        paths = sorted(
            map(epath.Path, pathlib.Path(root).glob(pattern) if '**' in pattern else root.glob(pattern)), key=str
        )
    if not paths:
        raise ValueError(f'corpus {spec!r} matches no file; check the path, and quote the glob in a shell')
    return root, paths


def _walk(folder: epath.Path) -> list[epath.Path]:
    """Files at any depth, in order; those whose name, or a folder's, starts with a dot are left out."""
    found = []
    for path in sorted(folder.iterdir(), key=str):
        if not path.name.startswith('.'):
            found += _walk(path) if path.is_dir() else [path]
    return found


def _unreadable(path: epath.Path, error: Exception) -> ValueError:
    reason = getattr(error, 'strerror', None) or str(error)
    return ValueError(f'cannot read {path}: {reason}; repair or remove the file')


def _jsonl(path: epath.Path, root: epath.Path, invalid_utf8: str, tally: Tally) -> Iterator[Document]:
    with path.open('rb') as raw:
        file: Any = gzip.GzipFile(fileobj=raw) if path.suffix == '.gz' else raw
        offset = 0
        for number, line in enumerate(file, 1):
            where = f'{path}, line {number}'
            text = decode_utf8(line, where, offset, invalid_utf8, tally)
            offset += len(line)
            if text.strip():
                try:
                    fields = json.loads(text)
                except (ValueError, RecursionError) as error:
                    hint = '; the file looks like UTF-16: save it as UTF-8' if '\0' in text else ''
                    raise ValueError(f'{where}: not JSON ({error}){hint or "; repair or remove the line"}') from None
                yield _document(fields, path, where, invalid_utf8, tally)


def _document(fields: Any, path: epath.Path, where: str, invalid_utf8: str, tally: Tally) -> Document:
    if not isinstance(fields, dict) or not isinstance(fields.get('text'), str):
        raise ValueError(f'{where}: no field text that is a string; every document needs one')
    labels = []
    for name, otherwise in (('domain', path.parent.resolve().name), ('source', path.name.split('.')[0])):
        label = fields.get(name)
        if label is not None and not isinstance(label, str):
            raise ValueError(f'{where}: {name}={label!r} is not a string')
        labels.append(without_surrogates(label or otherwise, where, invalid_utf8, tally))
    return Document(without_surrogates(fields['text'], where, invalid_utf8, tally), *labels)


def _parquet(path: epath.Path, root: epath.Path, invalid_utf8: str, tally: Tally) -> Iterator[Document]:
    import pyarrow as pa  # a slow import that only this reader needs
    import pyarrow.parquet

    with path.open('rb') as raw:
        try:
            file = pa.parquet.ParquetFile(raw)
            columns = [name for name in ('text', 'domain', 'source') if name in file.schema_arrow.names]
            if 'text' not in columns:
                raise ValueError(f'{path}: no column text; it has {", ".join(file.schema_arrow.names)}')
            row = 0
            for batch in file.iter_batches(batch_size=256, columns=columns):
                # binary: pyarrow would refuse invalid UTF-8 itself, without naming the row.
                values = [_binary(batch.column(name)).to_pylist() for name in columns]
                for items in zip(*values, strict=True):
                    where = f'{path}, row {row}'
                    row += 1
                    fields = {
                        name: None if item is None else decode_utf8(item, where, 0, invalid_utf8, tally)
                        for name, item in zip(columns, items, strict=True)
                    }
                    yield _document(fields, path, where, invalid_utf8, tally)
        except pa.ArrowException as error:
            raise ValueError(f'cannot read {path}: {error}; repair or remove the file') from error


def _binary(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def _text(path: epath.Path, root: epath.Path, invalid_utf8: str, tally: Tally) -> Iterator[Document]:
    text = decode_utf8(path.read_bytes(), str(path), 0, invalid_utf8, tally)
    folders = path.relative_to(root).parts[:-1]
    domain = folders[0] if folders else root.resolve().name
    yield Document(text, domain, folders[1] if len(folders) > 1 else domain)


_FILE_READERS = {'jsonl': _jsonl, 'parquet': _parquet, 'text': _text}
