"""Continues prompts with a trained model.

    smelt generate --checkpoint=runs/smelt --prompt='The committee shall' --new_tokens=100
    smelt generate --checkpoint=runs/smelt@1000 --prompt_file=prompts.txt --visits=3 --temperature=0 --stop='\\n' --json

Text is printed as it comes; of several prompts one after the other, each under its heading. Draws depend on --seed, the
prompt's number and the place of the token: the same command prints the same text, and another prompt beside it changes
nothing. Any number of visits can be asked for, whatever the model was trained with.

A prompt is read as documents were packed, with no special token before it; an empty one, --prompt=, begins with EOS. Where it
ends may be within what the tokenizer would have made one token: prompts go best without a space at their end.
"""

import json

from absl import flags

from smelt_jax.cli.flags import (
    FLAGS,
    define_checkpoints,
    define_mesh,
    define_processes,
    given_checkpoints,
    given_mesh,
    join_processes,
)


def define_flags() -> None:
    """What is continued, by which checkpoint, how, and on which devices."""
    define_checkpoints('Who continues.')
    flags.DEFINE_multi_string('prompt', None, 'The text to go on from. May be given often.')
    flags.DEFINE_string('prompt_file', '', 'More of them: a prompt a line, or JSON lines with "prompt".')
    flags.DEFINE_integer('new_tokens', 64, 'For each prompt, at most.')
    flags.DEFINE_float('temperature', 0.8, 'Logits are divided by it; 0 takes the most probable token.')
    flags.DEFINE_integer('top_k', 50, 'Draws from so many of the most probable tokens; 0 for all.')
    flags.DEFINE_float('top_p', 0.95, 'Of those, from the fewest whose probability reaches it; 1 for all.')
    flags.DEFINE_integer('seed', 0, 'Of the draws.')
    flags.DEFINE_multi_string('stop', [], r'A text that ends a continuation, \n and \t spelled so. May be given often.')
    flags.DEFINE_integer('chunk', 256, 'Tokens of a prompt that are read at a time: fewer take less memory.')
    flags.DEFINE_integer('visits', None, "Visits of the loop; the config's if not given.", lower_bound=1)
    flags.DEFINE_string('pack', '', "Another pack with the run's tokenizer, if its own is gone.")
    flags.DEFINE_bool('beyond', False, 'Take prompts that are longer than a row of training.')
    flags.DEFINE_bool('json', False, 'A line of JSON a prompt, when all have ended.')
    define_mesh()
    define_processes()


def run() -> None:
    """Continues, and prints."""
    from smelt_jax.generate.ask import ask, read_prompts, spelled_out
    from smelt_jax.generate.sampling import Sampling
    from smelt_jax.generate.text import InOrder
    from smelt_jax.parallel import processes

    join_processes()
    ((workdir, step),) = given_checkpoints()
    prompts = read_prompts(FLAGS.prompt or [], FLAGS.prompt_file)
    stops = tuple(spelled_out(text) for text in FLAGS.stop)
    settings = Sampling(
        FLAGS.new_tokens, FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.seed, FLAGS.chunk, stops
    )  # fmt: skip
    headings = [f'── {number}: {prompt!r}' if len(prompts) > 1 else '' for number, prompt in enumerate(prompts, 1)]
    first = processes.first()
    screen = InOrder(headings, lambda text: print(text, end='', flush=True)) if first and not FLAGS.json else None
    show = (lambda index, text, end: screen.add(index, text, bool(end))) if screen else None
    found, by = ask(workdir, step, prompts, settings, FLAGS.visits, FLAGS.pack, given_mesh(), FLAGS.beyond, show)
    for each in found if first and FLAGS.json else ():
        print(json.dumps(vars(each) | by, ensure_ascii=False))
