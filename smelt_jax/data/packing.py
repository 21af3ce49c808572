"""`pack`: text → documents → tokens → rows on disk, once.

    read      corpora → unique documents, in budget, spilled to disk in shuffled order (spill.py)
    tokenize  parts of the spill → tokens, over processes (workers.py)
    write     tokens, EOS after each document → one stream a split → rows of T + 1 tokens → shards (records.py)

Everything is written in OUT/.packing and moved up at the end, manifest.json last. So a folder with a manifest holds a
whole pack, and what a killed run left is known as such and removed by the next.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
from collections.abc import Iterator

from etils import epath
from rich import progress
from rich.console import Console

from smelt_jax.data import corpora, manifest, tokenizer, workers
from smelt_jax.data.config import PackConfig
from smelt_jax.data.documents import Budget, Tally, is_heldout, order_key, unique
from smelt_jax.data.records import SplitWriter
from smelt_jax.data.spill import Item, Part, Spill
from smelt_jax.version import __version__

_STAGE = '.packing'
_OURS = re.compile(r'(train|heldout)-\d{5}-of-\d{5}\.array_record|tokenizer\.json|manifest\.json\.partial')
# Neither changes the contents; files stand for corpora, so that a corpus may move.
_NOT_CONTENTS = ('workers', 'corpora')


def pack(config: PackConfig, out: epath.PathLike, console: Console | None = None) -> manifest.Manifest:
    """Packs `config.corpora` into the folder `out`, or finds that this has been done already.

    Laws: tokens in = tokens out, every document followed by EOS. The same inputs give the same bytes whatever the number of
    workers. Which documents are held out depends on each document's text alone.

    Args:
      config: see PackConfig.
      out: a folder on a disk or mounted; created if need be.
      console: where progress is shown; None shows nothing.

    Returns:
      The manifest of the pack that is now in `out`.

    Raises:
      ValueError: bad settings or corpora; `out` holds a pack of other inputs (named), is in use, or is not ours to fill;
        the disk is full. Nothing half-valid is left.
    """
    config.check()
    if '://' in str(out):
        raise ValueError(f'--out={out}: array_record writes to file systems only; mount the bucket and name the mount')
    folder = epath.Path(out).expanduser()
    inputs = describe_inputs(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if (folder / manifest.FILE_NAME).exists():
                return _existing(folder, inputs, console)
            _clear(folder)
            try:
                return _pack(config, folder, inputs, console or Console(quiet=True))
            finally:
                shutil.rmtree(folder / _STAGE, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f'cannot write {folder}: {reason}; make room there, or choose another --out') from error


def describe_inputs(config: PackConfig) -> dict[str, dict[str, object]]:
    """What decides a pack's contents: settings, and the identity of every input file. Reads all of them once."""
    settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in _NOT_CONTENTS}
    files: dict[str, object] = dict(corpora.identity(config.corpora))
    kind, _, path = config.tokenizer.partition(':')
    if kind == 'file':
        files['tokenizer'] = corpora.file_hash(epath.Path(path).expanduser())
        settings['tokenizer'] = kind
    return {'config': settings, 'files': files}


@contextlib.contextmanager
def _locked(folder: epath.Path) -> Iterator[None]:
    """Two runs packing into one folder would remove each other's files. The lock goes when its process does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f'{folder} is being packed by another process; wait for it') from None
    else:
        yield
    finally:
        os.close(descriptor)


def _existing(folder: epath.Path, inputs: dict, console: Console | None) -> manifest.Manifest:
    found = manifest.open_pack(folder)
    changed = manifest.differences(found.inputs, inputs)
    if changed:
        shown = '; '.join(changed[:5]) + (f'; and {len(changed) - 5} more' if len(changed) > 5 else '')
        raise ValueError(f'{folder} holds a pack of other inputs ({shown}); choose another --out, or delete that folder')
    if console is not None:
        console.print(f'{folder} holds this very pack already; nothing to do.')
    return found


def _clear(folder: epath.Path) -> None:
    """Removes what a killed run left, and nothing else."""
    names = {path.name for path in folder.iterdir()}
    leftovers = {name for name in names if _OURS.fullmatch(name)} if _STAGE in names else set()
    if others := sorted(names - leftovers - {_STAGE}):
        raise ValueError(f'{folder} is no pack and not empty (it has {", ".join(others[:3])}); choose another --out')
    for name in leftovers:
        (folder / name).unlink()
    shutil.rmtree(folder / _STAGE, ignore_errors=True)


def _pack(config: PackConfig, folder: epath.Path, inputs: dict, console: Console) -> manifest.Manifest:
    stage = folder / _STAGE
    stage.mkdir()
    tally = Tally()
    columns = (
        progress.TextColumn('{task.description}'),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console) as bar:
        corpus = _Corpus(config, tally, stage, bar)
        text = bar.add_task('learning the BPE' if config.tokenizer.startswith('bpe') else 'loading the tokenizer')
        made = tokenizer.make(config.tokenizer, corpus.train_texts(config.bpe_train_bytes, bar, text))
        made.save(stage)
        writers = {
            split: SplitWriter(stage, split, config.row_tokens, made.vocab, made.eos, config.shard_rows)
            for split in manifest.SPLITS
        }
        counts = {split: [[0, 0, 0] for _ in corpus.sources] for split in manifest.SPLITS}
        work = bar.add_task('tokenizing and writing rows', total=corpus.bytes)
        count = config.workers or os.cpu_count() or 1
        for batch in workers.tokenize_all(corpus.parts, config.tokenizer, stage, corpus.limits, count):
            start = 0
            for length, source, heldout, size in zip(*(c.tolist() for c in batch[1:]), strict=True):
                split = 'heldout' if heldout else 'train'
                writers[split].add(batch.tokens[start : start + length], corpus.final_id[source])
                start += length
                for i, value in enumerate((1, length, size)):
                    counts[split][corpus.final_id[source]][i] += value
            bar.advance(work, int(batch.text_bytes.sum()))
        for writer in writers.values():
            writer.close()
    splits = {name: _finish_split(name, writers[name], corpus.sources, counts[name]) for name in manifest.SPLITS}
    _check_splits(splits, config)
    contents = [made.fingerprint, config.row_tokens, corpus.sources, *(w.contents.hexdigest() for w in writers.values())]
    result = manifest.Manifest(
        format=manifest.FORMAT,
        version=manifest.VERSION,
        written_by=__version__,
        tokenizer=config.tokenizer,
        tokenizer_fingerprint=made.fingerprint,
        vocab=made.vocab,
        eos=made.eos,
        row_tokens=config.row_tokens,
        seed=config.seed,
        dropped_duplicates=tally.duplicates,
        empty=tally.empty,
        over_budget=corpus.documents - sum(split.documents for split in splits.values()),
        replaced_utf8=tally.replaced_utf8,
        skipped=tally.skipped,
        inputs=inputs,
        inputs_fingerprint=manifest.fingerprint(inputs),
        fingerprint=manifest.fingerprint(contents),
        **splits,
    )
    for path in sorted(stage.iterdir(), key=str):
        if _OURS.fullmatch(path.name):
            os.replace(path, folder / path.name)
    manifest.save(result, folder)
    return manifest.load_manifest(folder)


class _Corpus:
    """The corpus, read once: its documents in order on disk, its sources, what each domain's budget allows."""

    def __init__(self, config: PackConfig, tally: Tally, stage: epath.Path, bar: progress.Progress):
        task = bar.add_task('reading', total=None)
        documents = corpora.read(
            config.corpora, config.invalid_utf8, tally, lambda name: bar.update(task, description=f'reading {name[-40:]}')
        )
        ids: dict[tuple[str, str], int] = {}
        budgets: dict[str, Budget] = {}
        spill = Spill(stage / 'documents')
        self.documents = self.bytes = 0
        for document, text, identity in unique(documents, tally):
            self.documents += 1
            source = ids.setdefault((document.domain, document.source), len(ids))
            budget = budgets.setdefault(document.domain, Budget(config.max_bytes))
            if not config.max_bytes or budget.offer(identity, len(text)):
                heldout = is_heldout(identity, config.heldout_fraction)
                spill.add(Item(order_key(identity, config.seed), Budget.rank(identity), source, heldout, text))
                self.bytes += len(text)
            bar.advance(task, len(text))
        bar.update(task, description='reading', total=self.bytes)
        if not self.documents:
            raise ValueError(f'corpora {", ".join(config.corpora)} hold no text; name files that have some')
        self.parts: list[Part] = spill.parts()
        self.limits = {source: budgets[domain].limit for (domain, _), source in ids.items()}
        # By name, not by first appearance: the ids must not depend on which file is read first.
        self.sources = sorted(ids)
        self.final_id = {ids[key]: index for index, key in enumerate(self.sources)}

    def train_texts(self, max_bytes: int, bar: progress.Progress, task: progress.TaskID) -> Iterator[str]:
        """Texts of the train split in order, up to `max_bytes`."""
        taken = 0
        for part in self.parts:
            for item in part.load(self.limits):
                if not item.heldout:
                    taken += len(item.text)
                    if taken > max_bytes:
                        return
                    bar.advance(task, len(item.text))
                    yield item.text.decode('utf-8')


def _finish_split(name: str, writer: SplitWriter, sources: list, counts: list[list[int]]) -> manifest.Split:
    """Gives the shards their final names."""
    shards = []
    for index, (path, rows) in enumerate(writer.shards):
        final = path.parent / f'{name}-{index:05d}-of-{len(writer.shards):05d}.array_record'
        os.replace(path, final)
        shards.append(manifest.Shard(final.name, rows, final.stat().length))
    table = tuple(manifest.Source(source, domain, *count) for (domain, source), count in zip(sources, counts, strict=True))
    return manifest.Split(
        rows=writer.rows,
        documents=sum(source.documents for source in table),
        tokens=writer.tokens,
        bytes=sum(source.bytes for source in table),
        mean_attended_keys=writer.mean_attended_keys,
        sources=table,
        shards=tuple(shards),
    )


def _check_splits(splits: dict[str, manifest.Split], config: PackConfig) -> None:
    documents = sum(split.documents for split in splits.values())
    if not documents:
        raise ValueError(f'max_bytes={config.max_bytes} leaves no document; allow more')
    if not splits['train'].documents or (config.heldout_fraction and not splits['heldout'].documents):
        empty = 'train' if not splits['train'].documents else 'heldout'
        raise ValueError(
            f'heldout_fraction={config.heldout_fraction} of {documents} documents leaves the {empty} split empty; '
            'add documents or change the fraction'
        )
