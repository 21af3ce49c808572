"""Settings of the data room: what `smelt pack` writes, and how training reads it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class PackConfig:
    """Text → packed rows on disk.

    Attributes:
      corpora: where documents come from, each `READER:WHERE`: `local` | `jsonl:GLOB` | `text:FOLDER` | `parquet:GLOB`
        | `made:NAME[+NAME…][:DOCUMENTS]`, of dyck, copy, arithmetic, induction.
      tokenizer: `bytes` | `bpe:SIZE` (trained on this corpus, byte level) | `file:PATH/tokenizer.json`.
      row_tokens: T, the inputs of a row; a stored row has T + 1 tokens.
      heldout_fraction: share of documents that are held out, chosen by a hash of the document.
      max_bytes: text taken from each domain at most, in bytes; 0 takes all.
      invalid_utf8: `replace` (with U+FFFD, counted in the manifest) | `refuse`.
      seed: order in which documents are packed.
      shard_rows: rows in a file at most.
      workers: processes that tokenize; 0 takes one a core. Any number writes the same pack.
      bpe_train_bytes: training text that `bpe:SIZE` learns its merges from, in bytes, whole documents. More changes little.
    """

    corpora: tuple[str, ...] = ('local',)
    tokenizer: str = 'bytes'
    row_tokens: int = 512
    heldout_fraction: float = 0.05
    max_bytes: int = 0
    invalid_utf8: str = 'replace'
    seed: int = 0
    shard_rows: int = 4096
    workers: int = 0
    bpe_train_bytes: int = 32_000_000

    def check(self) -> None:
        """Raises ValueError on a value that no corpus could be packed with."""
        least = {'row_tokens': 1, 'shard_rows': 1, 'bpe_train_bytes': 1, 'max_bytes': 0, 'workers': 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f'pack.{name}={getattr(self, name)}: must be at least {bound}')
        if self.row_tokens >= 2**24:
            raise ValueError(f'pack.row_tokens={self.row_tokens}: must be below 2**24; one row is held in memory')
        if not self.corpora:
            raise ValueError('pack.corpora is empty; name at least one, e.g. local')
        if not 0 <= self.heldout_fraction < 1:
            raise ValueError(f'pack.heldout_fraction={self.heldout_fraction}: must be at least 0 and below 1')
        if self.invalid_utf8 not in ('replace', 'refuse'):
            raise ValueError(f'pack.invalid_utf8={self.invalid_utf8!r}: choose replace or refuse')


@dataclasses.dataclass(frozen=True)
class RowsConfig:
    """Packed rows → batches.

    Attributes:
      pack: the folder `smelt pack` wrote.
      batch_rows: B, rows of a global batch.
      seed: order of the rows.
      repeat: False: running out of rows is an error before the first step. True: further passes, each in an order of its own.
      prefetch: batches read ahead.
    """

    pack: str = ''
    batch_rows: int = 8
    seed: int = 0
    repeat: bool = False
    prefetch: int = 4

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        for name, least in [('batch_rows', 1), ('prefetch', 0)]:
            if getattr(self, name) < least:
                raise ValueError(f'data.{name}={getattr(self, name)}: must be at least {least}')
