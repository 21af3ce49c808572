"""Where a path lies, and files that are written whole. A path is an etils.epath one: gs:// works as a disk does, but for
what only a file system can do; `is_local` is the one place that asks."""

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator

from etils import epath

CLIENTS = {'gs': 'gcsfs', 's3': 's3fs', 'az': 'adlfs', 'hf': 'huggingface_hub'}  # of epath's schemes


def as_path(path: epath.PathLike) -> epath.Path:
    """The path that a user named; nothing is read. ValueError for a scheme that epath does not know."""
    scheme, found, _ = os.fspath(path).partition('://')
    if found and scheme not in CLIENTS:
        places = ', '.join(f'{name}://' for name in CLIENTS)
        raise ValueError(f'{path}: {scheme}:// is no place for files; give a folder, or one of {places}')
    return epath.Path(path)


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is of a file system, a mounted one too: it can be locked, appended to, read at any place.

    epath takes /gs/… for gs://…, so that is none. ValueError as `as_path`.
    """
    return '://' not in os.fspath(as_path(path))


def reach(path: epath.PathLike) -> epath.Path:
    """`as_path` of what is to be read or written. ValueError, too, if what it takes to reach the bucket is not installed."""
    found = as_path(path)
    if not is_local(found):
        client = CLIENTS[os.fspath(found).partition('://')[0]]
        if not (_installed(client) or _installed('tensorflow')):  # epath prefers the second
            raise ValueError(f'{path}: it takes {client} to reach it, which is not there; pip install {client}')
    return found


def at_step(given: str, flag: str) -> tuple[str, int | None]:
    """What DIR[@STEP] says: (folder, step or None for the latest). A folder that is there by the whole name, @ and all, is
    meant. Raises ValueError, beginning with `flag`=`given`."""
    folder, at, step = given.rpartition('@')
    if not at or reach(given).exists():
        folder, step = given, ''
    elif not re.fullmatch('[0-9]+', step):
        raise ValueError(f'{flag}={given}: there is no such folder, and {step!r} is no step; give DIR or DIR@STEP')
    if not folder:
        raise ValueError(f'{flag}={given}: names no folder; give DIR or DIR@STEP')
    return folder, int(step) if step else None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def write_atomically(file: epath.Path, content: str | bytes) -> None:
    """The whole content or the old file: never a part, whatever kills the process. Raises OSError, naming the file.

    An object in a bucket is replaced when its upload ends. On a disk the content is there, then it takes the file's name. A
    link stays, and so does what is no file, as /dev/null: that is written to.
    """
    with naming(file):
        if is_local(file) and os.path.islink(file):
            file = epath.Path(os.path.realpath(file))
        if not is_local(file) or (os.path.exists(file) and not os.path.isfile(file)):
            _write(file, content)
            return
        temporary = file.parent / f'.{file.name}.{os.getpid()}'
        try:
            _write(temporary, content)
            temporary.replace(file)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to see
                temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def naming(path: epath.PathLike) -> Iterator[None]:
    """An OSError from here names `path`: Python names a file only when it cannot be opened, buckets at times not at all."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f'{path}: {error}') from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _write(file: epath.Path, content: str | bytes) -> None:
    with file.open('wb') as out:
        out.write(content.encode() if isinstance(content, str) else content)
        if is_local(file) and os.path.isfile(file):  # epath takes a pipe for a file
            out.flush()
            os.fsync(out.fileno())  # else a power cut could leave the name with nothing behind it
