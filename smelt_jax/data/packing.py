"""`pack`: text → documents → tokens → rows on disk, once.

    read      corpora → unique documents, in budget, spilled to disk in shuffled order (spill.py)
    tokenize  parts of the spill → tokens, over processes (workers.py)
    write     tokens, EOS after each document → one stream a split → rows of T + 1 tokens → shards (records.py)

Everything is written in OUT/.packing and moved up at the end, manifest.json last. So a folder with a manifest holds a
whole pack, and what a killed run left is known as such and removed by the next.
"""

import contextlib
import dataclasses
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
from smelt_jax.data.shards import Shard
from smelt_jax.data.spill import Item, Part, Spill
from smelt_jax.storage.files import is_local, reach
from smelt_jax.storage.hold import held
from smelt_jax.version import __version__

_STAGE, _HOLDER = '.packing', '.packing.holder'
_OURS = re.compile(r'(train|heldout)-\d{5}-of-\d{5}\.array_record|tokenizer\.json')
_COLUMNS = (
    progress.TextColumn('{task.description}', markup=False),
    progress.BarColumn(),
    progress.DownloadColumn(),
    progress.TransferSpeedColumn(),
    progress.TimeElapsedColumn(),
)
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
    if not is_local(out):
        raise ValueError(f'{out}: rows are written to a disk; give --out, or data.pack of a sweep, a folder on one')
    folder = reach(out).expanduser()
    inputs = describe_inputs(config)
    console = console or Console(markup=False, quiet=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder / _HOLDER):  # two would remove each other's files
            if (folder / manifest.FILE_NAME).exists():
                result = _existing(folder, inputs, console)
            else:
                _clear(folder)
                try:
                    result = _pack(config, folder, inputs, console)
                except BaseException:
                    _clear(folder)
                    raise
            shutil.rmtree(folder / _STAGE, ignore_errors=True)
            return result
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f'cannot write {folder}: {reason}; make room there, or choose another --out') from error


def describe_inputs(config: PackConfig) -> dict[str, dict[str, object]]:
    """What decides a pack's contents: settings, and the identity of every input file. Reads all of them once."""
    settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in _NOT_CONTENTS}
    files: dict[str, object] = dict(corpora.identity(config.corpora))
    kind, _, path = config.tokenizer.partition(':')
    if kind == 'file':
        files['tokenizer'] = corpora.file_hash(reach(path).expanduser())
        settings['tokenizer'] = kind
    return {'config': settings, 'files': files}


def _existing(folder: epath.Path, inputs: dict, console: Console) -> manifest.Manifest:
    found = manifest.open_pack(folder)
    changed = manifest.differences(found.inputs, inputs)
    if changed:
        shown = '; '.join(changed[:5]) + (f'; and {len(changed) - 5} more' if len(changed) > 5 else '')
        raise ValueError(
            f'{folder} holds a pack of other inputs ({shown}); choose another --out, or delete that folder'
        )
    console.print(f'{folder} holds this very pack already; nothing to do.')
    return found


def _clear(folder: epath.Path) -> None:
    """Removes what an unfinished run left, and nothing else: what is not ours is an error."""
    names = {path.name for path in folder.iterdir()} - {_HOLDER}
    leftovers = {name for name in names if _OURS.fullmatch(name)} if _STAGE in names else set()
    if others := sorted(names - leftovers - {_STAGE}):
        raise ValueError(f'{folder} is no pack and not empty (it has {", ".join(others[:3])}); choose another --out')
    for name in leftovers:
        (folder / name).unlink()
    shutil.rmtree(folder / _STAGE, ignore_errors=True)


def _pack(config: PackConfig, folder: epath.Path, inputs: dict, console: Console) -> manifest.Manifest:
    stage = folder / _STAGE
    stage.mkdir()
    tally, make_tokenizer = Tally(), tokenizer.maker(config.tokenizer)
    with progress.Progress(*_COLUMNS, console=console) as bar:
        corpus = _Corpus(config, tally, stage, bar)
        made = make_tokenizer(corpus.train_texts(config.bpe_train_bytes, bar))
        made.save(stage)
        splits, contents = _write_rows(config, corpus, made, stage, bar)
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
        fingerprint=manifest.fingerprint([made.fingerprint, config.row_tokens, corpus.sources, contents]),
        **splits,
    )
    manifest.save(result, stage)
    for path in sorted(stage.iterdir(), key=str):
        if _OURS.fullmatch(path.name):
            os.replace(path, folder / path.name)
    os.replace(stage / manifest.FILE_NAME, folder / manifest.FILE_NAME)
    return result


class _Corpus:
    """The corpus, read once: its documents in order on disk, its sources, what each domain's budget allows."""

    def __init__(self, config: PackConfig, tally: Tally, stage: epath.Path, bar: progress.Progress):
        task = bar.add_task('reading', total=None)
        documents = corpora.read(
            config.corpora,
            config.invalid_utf8,
            tally,
            lambda name: bar.update(task, description=f'reading {name[-40:]}'),
        )
        ids: dict[tuple[str, str], int] = {}
        budgets: dict[str, Budget] = {}
        spill = Spill(stage / 'documents')
        heldout_documents = self.documents = self.bytes = 0
        for document, text, identity in unique(documents, tally):
            heldout = is_heldout(identity, config.heldout_fraction)
            self.documents += 1
            heldout_documents += heldout
            source = ids.setdefault((document.domain, document.source), len(ids))
            budget = budgets.setdefault(document.domain, Budget(config.max_bytes))
            if not config.max_bytes or budget.offer(identity, len(text)):
                spill.add(Item(order_key(identity, config.seed), Budget.rank(identity), source, heldout, text))
                self.bytes += len(text)
            bar.advance(task, len(text))
        bar.update(task, description='reading', total=self.bytes, completed=self.bytes)
        self.parts: list[Part] = spill.parts()
        if not self.documents:
            raise ValueError(f'corpora {", ".join(config.corpora)} hold no text; name files that have some')
        _check_split_sizes(self.documents - heldout_documents, heldout_documents, config)
        self.limits = {source: budgets[domain].limit for (domain, _), source in ids.items()}
        # By name, not by first appearance: the ids must not depend on which file is read first.
        self.sources = sorted(ids)
        self.final_id = {ids[key]: index for index, key in enumerate(self.sources)}

    def train_texts(self, max_bytes: int, bar: progress.Progress) -> Iterator[str]:
        """Texts of the train split in order, until they have `max_bytes`."""
        task = bar.add_task('learning the BPE', total=min(max_bytes, self.bytes))
        taken = 0
        for part in self.parts:
            for item in part.load(self.limits):
                if taken >= max_bytes:
                    return
                if not item.heldout:
                    taken += len(item.text)
                    bar.advance(task, len(item.text))
                    yield item.text.decode('utf-8')


def _write_rows(
    config: PackConfig, corpus: _Corpus, made: tokenizer.Tokenizer, stage: epath.Path, bar: progress.Progress
) -> tuple[dict[str, manifest.Split], list[str]]:
    """Tokenizes the corpus into shards. (the splits, a hash of each one's records)."""
    writers = [
        SplitWriter(stage, split, config.row_tokens, made.vocab, made.eos, config.shard_rows)
        for split in manifest.SPLITS
    ]
    task = bar.add_task('tokenizing and writing rows', total=corpus.bytes)
    count = config.workers or os.cpu_count() or 1
    batches = workers.tokenize_all(corpus.parts, config.tokenizer, stage, corpus.limits, count)
    with contextlib.closing(batches):
        for batch in batches:
            end = 0
            for length, source, heldout, text_bytes in zip(*(c.tolist() for c in batch[1:]), strict=True):
                start, end = end, end + length
                writers[heldout].add(batch.tokens[start:end], corpus.final_id[source], text_bytes)
            bar.advance(task, int(batch.text_bytes.sum()))
    for writer in writers:
        writer.close()
    bar.update(task, total=bar.tasks[task].completed)
    splits = {name: _finish_split(name, w, corpus) for name, w in zip(manifest.SPLITS, writers, strict=True)}
    _check_split_sizes(splits['train'].documents, splits['heldout'].documents, config)
    return splits, [writer.contents.hexdigest() for writer in writers]


def _finish_split(name: str, writer: SplitWriter, corpus: _Corpus) -> manifest.Split:
    """Gives the shards their final names."""
    shards = []
    for index, (path, rows, seal) in enumerate(writer.shards):
        final = path.parent / f'{name}-{index:05d}-of-{len(writer.shards):05d}.array_record'
        os.replace(path, final)
        shards.append(Shard(final.name, rows, os.stat(final).st_size, seal))
    table = tuple(
        manifest.Source(source, domain, *writer.counts.get(index, (0, 0, 0)))
        for index, (domain, source) in enumerate(corpus.sources)
    )
    return manifest.Split(
        rows=writer.rows,
        documents=sum(source.documents for source in table),
        tokens=sum(source.tokens for source in table),
        bytes=sum(source.bytes for source in table),
        mean_attended_keys=writer.mean_attended_keys,
        sources=table,
        shards=tuple(shards),
    )


def _check_split_sizes(train: int, heldout: int, config: PackConfig) -> None:
    """Before and after the budget: a run must not find out at its end that there is nothing to evaluate on."""
    if not train or (config.heldout_fraction and not heldout):
        raise ValueError(
            f'heldout_fraction={config.heldout_fraction} and max_bytes={config.max_bytes} leave {train} documents to '
            f'train on and {heldout} held out; add text, or change one of them'
        )
