"""The command `smelt`: finds the verb, parses its flags, runs it, and says in one line what a user can put right."""

import difflib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from absl import flags, logging

from smelt_jax import stop
from smelt_jax.cli import pages
from smelt_jax.host import keep_freed_memory
from smelt_jax.version import __version__

HELP = ('--help', '-h', '-help', '--helpfull', '--helpshort')
OUR_CODE = tuple(str(Path(__file__).parents[2] / room) for room in ('smelt_jax', 'experiments', 'pallas_kernels'))


def command() -> NoReturn:
    """The program `smelt`. It ends at once when it has said its last line, though threads of a failed save or of a reader that
    hangs do not; processes of a run that have done their work part first."""
    code = None
    try:
        # To the very end: a second signal on the way out is a second signal.
        with stop.listening():
            code = main()
            processes = _processes()
            if processes and not code:
                processes.part()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    except BrokenPipeError:  # the reader of our output has what it wanted
        os._exit(1)
    except stop.Stopped as stopped:
        if code is None:  # it had not begun
            stop.say(f'\nsmelt: {stopped}')
        os._exit(stopped.code if code is None else code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `smelt ARGV`. Returns the exit code: 0, 1 if the verb failed for a reason it names, 2 for a wrong command line, 130
    and 143 if it was stopped by SIGINT and SIGTERM; 75 (EX_TEMPFAIL) is a run that stalled or lost a process. Exceptions other
    than ValueError and OSError are faults of the program, and shown with the way there."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in HELP:
        print(pages.front(), end='')
        return 0
    if words[0] == '--version':
        print(f'smelt_jax {__version__}')
        return 0
    verb, *rest = words
    known = list(pages.verbs())
    if verb not in known:
        near = difflib.get_close_matches(verb, known, n=1)
        hint = f'did you mean {near[0]}?' if near else f'there are {", ".join(known)}'
        return _fail('smelt', f'no verb {verb!r}; {hint}', 2)

    try:
        with stop.listening():
            code = _begin(verb, rest)
    except stop.Stopped as stopped:
        stop.say(f'\nsmelt {verb}: {stopped}')
        code = stopped.code
        if stopped.together and (processes := _processes()):
            processes.part()
    processes = _processes()
    return processes.end(code) if processes else code


def _begin(verb: str, rest: list[str]) -> int:
    debug = '--debug' in rest or os.environ.get('SMELT_DEBUG') == '1'
    rest = [word for word in rest if word != '--debug']
    module = importlib.import_module(f'smelt_jax.cli.{verb}')
    before = set(flags.FLAGS)
    module.define_flags()
    own = [flags.FLAGS[name] for name in flags.FLAGS if name not in before]
    if any(word in HELP for word in rest):
        print(pages.verb(verb, module.__doc__ or '', own, keys='config' in flags.FLAGS), end='')
        return 0

    kinds = getattr(module, 'WORDS', ())  # of a verb that does one of several things: smelt VERB WORD --flags
    if kinds and (not rest or rest[0] not in kinds):
        given = f', not {rest[0]!r}' if rest and not rest[0].startswith('-') else ''
        return _fail(f'smelt {verb}', f'say what: {", ".join(kinds)}{given}', 2)
    chosen, rest = rest[: bool(kinds)], rest[bool(kinds) :]

    sys.argv = [f'smelt {verb}', *rest]  # where config_flags looks for overrides
    try:
        _parse(sys.argv)
    except (flags.Error, ValueError, OSError) as error:
        if debug:
            raise
        return _fail(f'smelt {verb}', re.sub(r'^flag --(\S+)=None: .*', r'--\1 is required', str(error)), 2)
    keep_freed_memory()  # before a verb imports jax
    return _run(verb, module, chosen, debug)


def _parse(argv: list[str]) -> None:
    if 'config' in flags.FLAGS:
        from smelt_jax.cli.flags import check_overrides

        check_overrides(argv[1:])
    strays = flags.FLAGS(argv)[1:]
    if strays:
        boolean = strays[0].lower() in ('true', 'false')
        remedy = 'a switch is --name or --noname' if boolean else 'everything is given as --flag=value'
        raise ValueError(f'stray word {strays[0]!r}; {remedy}')


def _run(verb: str, module: ModuleType, chosen: list[str], debug: bool) -> int:
    if not debug:
        # Orbax warns of every choice that is ours, and logs each failed write many times over before it raises it.
        logging.set_verbosity(logging.FATAL)
    if not sys.stdout.isatty():
        os.environ.setdefault('COLUMNS', '120')  # of a table that goes to a file; rich would take 80
    try:
        try:
            module.run(*chosen)
        except Exception as error:
            if (cause := stop.instead_of(error)) is not error:
                raise cause from error
            if processes := _processes():
                processes.look_around()
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if debug:
            raise
        return _fail(f'smelt {verb}', f'{error.filename}: {error.strerror}' if error.filename else str(error), 1)
    except ValueError as error:
        if debug:
            raise
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        hint = '' if where.startswith(OUR_CODE) else f'\n  (raised in {where}; --debug shows the way there)'
        return _fail(f'smelt {verb}', f'{error}{hint}', 1)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _processes() -> ModuleType | None:
    """`smelt_jax.parallel.processes`, if the verb was one that many can share."""
    return sys.modules.get('smelt_jax.parallel.processes')


def _fail(who: str, message: str, code: int) -> int:
    sys.stdout.flush()
    stop.say(f'{who}: error: {message}')
    return code
