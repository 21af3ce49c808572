"""Packs text into rows on disk, with a manifest.

    smelt pack --config=experiments/quickstart.py:baseline --out=data/pack
    smelt pack --config=experiments/quickstart.py:baseline --out=data/mine \\
        '--config.pack.corpora=("jsonl:texts/*.jsonl.gz",)'

Reads the corpora of the config (its keys pack.*), drops exact duplicates, holds documents out by a hash of their text,
tokenizes over all cores, and writes rows of row_tokens + 1 tokens. Tokenizers: bytes | bpe:SIZE | file:PATH/tokenizer.json.
A document is a text with a source and a domain, by which losses are reported:

    jsonl:GLOB     lines {"text": …, "domain": …, "source": …}, plain or .gz; without a domain it is the name of the file's
                   folder, without a source the file's own
    parquet:GLOB   columns of these names, likewise
    text:FOLDER    each file a document; FOLDER/DOMAIN/SOURCE/… names both, a file higher up takes what folder it has
    local          what every Python machine has: library source, docstrings, topics, licences, package descriptions
    made:NAMES     made-up text, dyck+copy:4096 for instance: so many documents each of dyck, copy, arithmetic, induction

pack.max_bytes bounds what is taken of each domain; 0 takes all. What was left out is in the printed table.

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
    from smelt_jax import screen
    from smelt_jax.data.packing import pack
    from smelt_jax.data.summary import tables

    manifest = pack(run_config().pack, flags.FLAGS.out, Console(markup=False, stderr=True))
    screen.show(Console(markup=False), tables(manifest))
