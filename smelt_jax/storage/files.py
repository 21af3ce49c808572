"""Where a path lies, and files that are written whole. A path is an etils.epath one: gs:// works as a disk does, but for
what only a file system can do; `is_local` is the one place that asks."""

import contextlib
import os
from collections.abc import Iterator

from etils import epath

SCHEMES = ('gs', 's3', 'az', 'hf')  # epath's


def as_path(path: epath.PathLike) -> epath.Path:
    """The path that a user named. ValueError for a scheme that epath does not know."""
    scheme, found, _ = os.fspath(path).partition('://')
    if found and scheme not in SCHEMES:
        known = ', '.join(f'{name}://' for name in SCHEMES)
        raise ValueError(f'{path}: {scheme}:// is no place for files; give a folder, or one of {known}')
    return epath.Path(path)


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is of a file system, a mounted one too: it can be locked, appended to, read at any place.

    epath takes /gs/… for gs://…, so that is none.
    """
    return '://' not in os.fspath(as_path(path))


def write_atomically(file: epath.Path, content: str | bytes) -> None:
    """The whole content or the old file: never a part, whatever kills the process. Raises OSError, naming the file.

    An object in a bucket is replaced when its upload ends. On a disk the content is there, then it takes the file's name.
    """
    with naming(file):
        if not is_local(file):
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
        if is_local(file):
            out.flush()
            os.fsync(out.fileno())  # else a power cut could leave the name with nothing behind it
