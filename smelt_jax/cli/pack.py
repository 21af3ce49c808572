"""Packs text into rows on disk, with a manifest.

    smelt pack --config=experiments/quickstart.py:baseline --out=data/pack
    smelt pack --config=experiments/quickstart.py:baseline --out=data/mine \\
        '--config.pack.corpora=("jsonl:texts/*.jsonl.gz",)'

Reads the corpora of the config (its keys pack.*), drops exact duplicates, holds documents out by a hash of their text,
tokenizes over all cores, and writes rows of row_tokens + 1 tokens. Corpora are named local | jsonl:GLOB | text:FOLDER |
parquet:GLOB; tokenizers bytes | bpe:SIZE | file:PATH/tokenizer.json.

Run again with the same inputs it does nothing; with other inputs into the same folder it refuses, and says what
differs. Killed, or on a full disk, it leaves nothing that could be taken for a pack. Training reads the folder as
--config.data.pack.
"""

from absl import flags
from rich.console import Console

from smelt_jax.cli.flags import define_config, run_config


def define_flags() -> None:
    """--config and --out."""
    define_config()
    flags.DEFINE_string('out', None, 'The folder for the pack, on a disk or mounted. Required.')
    flags.mark_flag_as_required('out')


def run() -> None:
    """Packs, and prints the manifest."""
    from smelt_jax.data.packing import pack
    from smelt_jax.data.summary import tables

    manifest = pack(run_config().pack, flags.FLAGS.out, Console(stderr=True))
    console = Console()
    for table in tables(manifest):
        console.print(table)
