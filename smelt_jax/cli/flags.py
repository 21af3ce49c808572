"""Flags that several verbs have, above all the --config that becomes a `RunConfig`."""

import ast
import dataclasses
import difflib
import importlib.util
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from smelt_jax.cli import pages
from smelt_jax.config import RunConfig, from_dict, resolve
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.storage.files import at_step

FLAGS = flags.FLAGS


def define_config(required: bool = True) -> None:
    """Defines --config, and with it a flag --config.KEY for every key."""
    help_text = 'The experiment, FILE.py or FILE.py:ARG.' + ' Required.' * required
    config_flags.DEFINE_config_file('config', None, help_text, lock_config=True)
    FLAGS['config'].parser = _ExperimentParser()  # its own hides a missing file until the first key is read
    if required:
        flags.mark_flag_as_required('config')


def define_workdir(help_text: str) -> None:
    """Defines --workdir, required: the run directory that the verb writes, or reads."""
    flags.DEFINE_string('workdir', None, f'{help_text} Required.')
    flags.mark_flag_as_required('workdir')
    flags.register_validator('workdir', lambda value: value != '', 'is empty; give a folder')


def define_checkpoints(help_text: str, several: bool = False) -> None:
    """Defines --checkpoint, required: DIR[@STEP], or with `several` a list of them."""
    each = ' DIR,DIR@STEP,…: ' if several else ' DIR[@STEP]: '
    text = f'{help_text}{each}a run directory, and the step if it is not the latest. Required.'
    flags.DEFINE_list('checkpoint', None, text)
    flags.mark_flag_as_required('checkpoint')
    if not several:
        flags.register_validator('checkpoint', lambda given: not given or len(given) == 1, 'takes one checkpoint')


def given_checkpoints(flag: str = 'checkpoint') -> list[tuple[str, int | None]]:
    """What --checkpoint, or another flag, says: (run directory, step or None for the latest). A directory that is there by the
    whole name, @ and all, is meant. Raises ValueError, naming the entry."""
    return [at_step(entry, f'--{flag}') for entry in FLAGS[flag].value or ()]


def define_mesh() -> None:
    """Defines --mesh, for verbs whose config comes from a run directory."""
    flags.DEFINE_list(
        'mesh',
        [],
        "KEY=VALUE,… of config.mesh, as replica=2,expert=4, the others as by default; the run's own mesh if not given.",
    )


def given_mesh() -> MeshConfig | None:
    """What --mesh says, other keys as they are by default; None if it says nothing. Raises ValueError, naming the entry."""
    if not FLAGS.mesh:
        return None
    config = ConfigDict(dataclasses.asdict(MeshConfig()))
    keys = [entry.partition('=')[0] for entry in FLAGS.mesh]
    for key in {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f'--mesh={",".join(FLAGS.mesh)}: {key} is given more than once')
    for entry in FLAGS.mesh:
        override(config, entry)
    mesh = from_dict(MeshConfig, config.to_dict(), 'mesh.')
    mesh.check()
    return mesh


def define_texts_and_lists(texts: Mapping[str, tuple[str, str]], lists: Mapping[str, tuple[str, str]]) -> None:
    """Defines flags by name → (default, help): texts, and lists of texts."""
    for define, table in ((flags.DEFINE_string, texts), (flags.DEFINE_list, lists)):
        for name, (default, text) in table.items():
            define(name, default, text)


def define_strict_restore() -> None:
    """Defines --strict_restore, for verbs that go on from a checkpoint."""
    flags.DEFINE_bool(
        'strict_restore', False, 'Refuse a damaged checkpoint, instead of setting it aside and taking the one before.'
    )


def define_processes() -> None:
    """Defines --coordinator and what goes with it: how a run of many processes finds together."""
    flags.DEFINE_string(
        'coordinator',
        '',
        'HOST:PORT of process 0 of a run of many; auto on a cluster that jax knows (TPU pods, Slurm, MPI).',
    )
    flags.DEFINE_integer('process_id', None, 'Which process this is, with --coordinator=HOST:PORT.', lower_bound=0)
    flags.DEFINE_integer('process_count', None, 'How many there are, with --coordinator=HOST:PORT.', lower_bound=1)
    flags.DEFINE_integer('peer_timeout', 300, 'Seconds that a missing process is waited for.', lower_bound=1)


def join_processes() -> None:
    """Joins them, before jax is used. Raises ValueError, naming who is missing."""
    if FLAGS.coordinator or FLAGS.process_id is not None or FLAGS.process_count is not None:
        from smelt_jax.parallel import processes  # jax, which --help does without

        processes.start(FLAGS.coordinator, FLAGS.process_id, FLAGS.process_count, FLAGS.peer_timeout)


def run_config() -> RunConfig:
    """The config of the command line, checked. Raises ValueError, naming the key."""
    if FLAGS.config is None:
        raise ValueError('--config=FILE.py is missing')
    return resolve(FLAGS.config)


def find_experiment(path: str) -> Path:
    """The file that `path` means: itself, or experiments/NAME.py as installed. Raises FileNotFoundError, listing what
    there is."""
    if Path(path).is_file():
        return Path(path)
    spec = importlib.util.find_spec('experiments')
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        if Path(path).parent == Path('experiments') and (folder / Path(path).name).is_file():
            return folder / Path(path).name
    names = sorted(file.name for folder in folders for file in folder.glob('[!_]*.py'))
    known = ', '.join(f'experiments/{name}' for name in names)
    raise FileNotFoundError(f'no experiment at {path!r}; there are {known or "none"}')


def load_experiment(value: str) -> ConfigDict:
    """What get_config of FILE.py[:ARG] returns. Raises ValueError or FileNotFoundError, naming the file and the remedy."""
    name, colon, arg = value.partition(':')
    path = find_experiment(name)
    module = load_module(path)
    get_config = getattr(module, 'get_config', None)
    if not callable(get_config):
        raise ValueError(f'{path} has no get_config(arg); an experiment defines it')
    takes = inspect.signature(get_config).parameters.values()
    if colon and not takes:
        raise ValueError(f'{path} takes no argument, got {arg!r}')
    if not colon and any(parameter.default is parameter.empty for parameter in takes):
        raise ValueError(f'{path} needs an argument, {name}:ARG, one of {", ".join(getattr(module, "ARGS", ()))}')
    args = getattr(module, 'ARGS', ())
    if colon and args and arg not in args:
        near = difflib.get_close_matches(arg, args, n=3) or args
        raise ValueError(f'{path} has no run {arg!r}; choose one of {", ".join(near)}' + ' …' * (len(near) < len(args)))
    try:
        config = get_config(arg) if colon else get_config()
    except TypeError as error:  # absl would take it for a value of the wrong type, and hide where it is
        raise RuntimeError(f'{path}: get_config failed') from error
    if not isinstance(config, ConfigDict):
        raise ValueError(f'{path}: get_config returned {type(config).__name__}; start from default_config()')
    return config


def override(config: ConfigDict, entry: str) -> None:
    """Sets one key from the text KEY=VALUE. Raises ValueError, naming it, for a key or a type that does not fit."""
    key, equals, text = entry.partition('=')
    if not equals:
        raise ValueError(f'{entry!r}: expected KEY=VALUE')
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    try:
        config.update_from_flattened_dict({key: value})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{entry}: {error}') from None


def check_overrides(argv: Sequence[str]) -> None:
    """Raises ValueError for the first --config.KEY of `argv` whose key no config has, with the nearest one."""
    defaults = {key: default for key, default, _ in pages.config_keys()}
    keys, seen = list(defaults), set()
    known = {'.'.join(key.split('.')[:depth]) for key in keys for depth in range(1, key.count('.') + 2)}
    given = any(re.match(r'--?config(=|$)', word) for word in argv)
    for word in argv:
        match = re.match(r'--?(?:no)?config\.([^=]*)', word)
        if match and match[1] not in known:
            same_end = [key for key in keys if key.split('.')[-1] == match[1].split('.')[-1]]
            near = same_end or difflib.get_close_matches(match[1], keys, n=1)
            raise ValueError(f'{word}: there is no key {match[1]}' + (f'; did you mean {near[0]}?' if near else ''))
        if match and match[1] in seen and isinstance(defaults.get(match[1]), tuple):
            raise ValueError(f'{word}: {match[1]} is given more than once; the flags would be joined, not replaced')
        seen |= {match[1]} if match else set()
        if match and not given:
            raise ValueError(f'{word} overrides a key of --config=FILE.py, which is missing')


class _ExperimentParser(flags.ArgumentParser):
    syntactic_help = 'FILE.py[:ARG]'

    def parse(self, argument: str) -> ConfigDict:
        return load_experiment(argument).lock()


def load_module(path: Path) -> Any:
    """The experiment file as a module: get_config, ARGS and, if it has one, NOTE."""
    spec = importlib.util.spec_from_file_location(f'experiment_{path.stem}', path)
    if spec is None or spec.loader is None:
        raise ValueError(f'{path} is not a Python file; an experiment is FILE.py')
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f'{path}, line {error.lineno}: {error.msg}') from None
    except ImportError as error:
        raise ValueError(f'{path}: {error}; install it, or mend the import') from error
    return module
