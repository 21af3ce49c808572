"""A gs:// that is a folder, with the manners of a bucket: an object is there when its upload ends, none can be added to, and
folders are but the beginnings of names."""

import io
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils.epath import backend, stat_utils

from smelt_jax.storage import files


class Bucket(backend.Backend):
    """gs://NAME/… is ROOT/NAME/…; what etils.epath asks of gs:// comes here while `patch` lasts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.broken = False  # no request gets through
        self.calls: list[str] = []

    def patch(self, monkeypatch: Any) -> None:
        from etils.epath import gpath

        monkeypatch.setitem(gpath._PREFIX_TO_BACKEND, 'gs', self)
        monkeypatch.setattr(gpath, '_GCS_BACKENDS', frozenset({self}))
        monkeypatch.setattr(gpath, '_is_tf_installed', lambda: False)
        monkeypatch.setattr(files, '_installed', lambda package: True)

    def path(self, path: os.PathLike | str) -> Path:
        """Where an object lies."""
        if self.broken:
            raise OSError('503 Service Unavailable')
        return self.root / os.fspath(path).removeprefix('gs://') if str(path).startswith('gs://') else Path(path)

    def open(self, path: os.PathLike | str, mode: str) -> Any:
        self.calls.append(f'{mode} {path}')
        file = self.path(path)
        if 'r' in mode:
            return file.open(mode)
        assert 'w' in mode, f'{mode}: a bucket cannot add to an object'
        return _Upload(self, path) if 'b' in mode else io.TextIOWrapper(_Upload(self, path), 'utf-8')

    def exists(self, path: os.PathLike | str) -> bool:
        return self.path(path).exists()

    def isdir(self, path: os.PathLike | str) -> bool:
        return self.path(path).is_dir()

    def listdir(self, path: os.PathLike | str) -> list[str]:
        return os.listdir(self.path(path))

    def glob(self, path: os.PathLike | str) -> list[str]:
        import glob

        return [f'gs://{Path(found).relative_to(self.root)}' for found in glob.glob(str(self.path(path)))]

    def walk(self, top: Any, *, top_down: bool = True, on_error: Any = None) -> Iterator[Any]:
        raise NotImplementedError

    def makedirs(self, path: os.PathLike | str, *, exist_ok: bool = False, mode: int | None = None) -> None:
        self.path(path)

    def mkdir(self, path: os.PathLike | str, *, exist_ok: bool = False, mode: int | None = None) -> None:
        self.path(path)

    def rmtree(self, path: os.PathLike | str) -> None:
        shutil.rmtree(self.path(path))

    def remove(self, path: os.PathLike | str) -> None:
        self.path(path).unlink()

    def rename(self, path: os.PathLike | str, dst: os.PathLike | str) -> None:
        raise AssertionError(f'{path} -> {dst}: a bucket copies and deletes, which is no replacing')

    replace = rename

    def copy(self, path: os.PathLike | str, dst: os.PathLike | str, overwrite: bool) -> None:
        shutil.copyfile(self.path(path), self.path(dst))

    def stat(self, path: os.PathLike | str) -> stat_utils.StatResult:
        found = self.path(path).stat()
        return stat_utils.StatResult(
            is_directory=self.isdir(path), length=found.st_size, mtime=int(found.st_mtime), owner=None, group=None
        )


class _Upload(io.BytesIO):
    """Becomes an object when it is closed."""

    def __init__(self, bucket: Bucket, path: os.PathLike | str) -> None:
        super().__init__()
        self._bucket, self._path = bucket, path

    def close(self) -> None:
        if not self.closed:
            file = self._bucket.path(self._path)
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = self._bucket.root / f'.{uuid.uuid4().hex}'
            partial.write_bytes(self.getvalue())
            os.replace(partial, file)
        super().close()
