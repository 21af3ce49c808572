"""What `smelt`, `smelt --help` and `smelt VERB --help` print. Imports no verb, so that the first page comes at once."""

import ast
import dataclasses
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

from absl import flags

import smelt_jax.cli

# The data's way: a verb that is not named here comes last.
ORDER = (
    'pack', 'contamination', 'train', 'branch', 'evaluate', 'probe', 'generate', 'budget', 'fit', 'law', 'figure', 'sweep',
    'bench', 'compile',
)  # fmt: skip

FRONT = """\
smelt: compute-matched looped mixture-of-experts Transformers in JAX

Pretrains two architectures under one budget on the same tokens, anneals both from the same steps, and says which one
is better by how much: a Baseline, and a looped model (SMELT) whose middle layers run several times.

    text → packed rows → model → checkpoint → branch → record → law → figure

Usage:
    smelt VERB [--flag=value ...]
    smelt VERB --help         what it does, its flags, and every key of --config

Verbs, in the order of the data's way:
{verbs}

Examples:
{examples}

An experiment is a file with get_config(arg): --config=experiments/FILE.py:ARG. Any key of it is a flag:
--config.optim.peak_lr=1e-3 --config.train.branch_steps='(100,200)'. A key that does not exist is an error.
"""

# Shown for the verbs that are there.
EXAMPLES = (
    ('sweep', 'the main job at toy size, on text that is on this machine',
     'smelt sweep --experiment=experiments/quickstart.py --workdir=runs/quickstart'),
    ('train', 'one run; the same command again goes on where it was',
     'smelt train --config=experiments/quickstart.py:smelt --config.data.pack=runs/quickstart/pack --workdir=runs/one'),
    ('branch', 'anneal it from a step that it kept',
     'smelt branch --trunk=runs/one --step=64 --workdir=runs/one-annealed'),
)  # fmt: skip

WIDTH = 118
_QUOTES = '\'"'


def verbs() -> dict[str, str]:
    """Every verb and the first line of its docstring, in the order of the data's way: the modules of this package that
    define `run`."""
    found = {}
    for folder in smelt_jax.cli.__path__:
        for path in Path(folder).glob('*.py'):
            tree = ast.parse(path.read_text(encoding='utf-8'))
            if any(isinstance(node, ast.FunctionDef) and node.name == 'run' for node in tree.body):
                found[path.stem] = (ast.get_docstring(tree) or '').split('\n')[0]
    place = {verb: i for i, verb in enumerate(ORDER)}
    return {verb: found[verb] for verb in sorted(found, key=lambda verb: (place.get(verb, len(ORDER)), verb))}


def front() -> str:
    """The page of `smelt` and `smelt --help`."""
    found = verbs()
    lines = list(_columns((('    ' + verb, line) for verb, line in found.items()), left=20))
    examples = [f'    # {what}\n    {line}' for verb, what, line in EXAMPLES if verb in found]
    return FRONT.format(verbs='\n'.join(lines), examples='\n'.join(examples))


def verb(name: str, doc: str, own: Iterable[flags.Flag], keys: bool) -> str:
    """The page of a verb: its docstring, its own flags and, if it takes a config, the keys of that."""
    page = [f'smelt {name}: {doc.strip()}', '', 'Flags:', *_columns(map(_flag_entry, own), left=30)]
    page += _columns([('  --debug', 'Shows the traceback of an error (or SMELT_DEBUG=1).')], left=30)
    if keys:
        page += [
            '',
            'Keys of --config with their defaults. The experiment sets others; --config.KEY=VALUE overrides both:',
        ]
        page += _columns(((f'  {key}={default!r}', text) for key, default, text in config_keys()), left=44)
    return '\n'.join(page) + '\n'


def config_keys() -> list[tuple[str, typing.Any, str]]:
    """(key, default, description) of every key of a config, `model.width` and so on, in the order of their definition."""
    from smelt_jax.config import RunConfig  # not for the first page

    return list(_leaves(RunConfig(), ''))


def _leaves(config: typing.Any, where: str) -> Iterator[tuple[str, typing.Any, str]]:
    docs = _attribute_docs(type(config).__doc__ or '')
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f'{where}{field.name}.')
        else:
            yield where + field.name, value, docs.get(field.name, '')


def _attribute_docs(docstring: str) -> dict[str, str]:
    """The lines `name: text` and `name, name: text` of a docstring's Attributes, by name."""
    _, _, section = docstring.partition('Attributes:\n')
    docs: dict[str, str] = {}
    for names, text in re.findall(r'^ {6}(\w[\w, ]*): (.*(?:\n {8}.*)*)', section, flags=re.MULTILINE):
        docs |= dict.fromkeys(names.split(', '), ' '.join(text.split()))
    return docs


def _flag_entry(flag: flags.Flag) -> tuple[str, str]:
    text = re.sub(r'^<.*?>: |;\s*repeat this option to specify a list of values$', '', flag.help or '')
    if flag.boolean:
        return f'  --[no]{flag.name}', text + ' On by default.' * bool(flag.default)
    if isinstance(flag.parser, flags.EnumParser):
        text = f'{" | ".join(flag.parser.enum_values)}: {text}'
    default = '' if flag.default is None else (flag.default_as_str or '').strip(_QUOTES)
    return f'  --{flag.name}={default}' if default not in ('', '[]') else f'  --{flag.name}', text


def _columns(entries: Iterable[tuple[str, str]], left: int) -> Iterator[str]:
    """Two columns, the right one wrapped; what is too long for the left one has a line of its own."""
    for name, text in entries:
        lines = textwrap.wrap(' '.join(text.split()), WIDTH - left, break_on_hyphens=False) or ['']
        if len(name) + 2 > left:
            yield name
        else:
            yield f'{name:{left}}{lines.pop(0)}'.rstrip()
        yield from (' ' * left + line for line in lines if line)
