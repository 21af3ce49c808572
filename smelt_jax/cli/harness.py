"""The program `smelt-lm-eval`: `lm_eval` of lm-evaluation-harness, to which the model `smelt` is known.

    smelt-lm-eval --model smelt --model_args checkpoint=runs/smelt,visits=2 --tasks lambada_openai

Releases of lm-eval up to 0.4.13 do not look for models in other packages; of later ones `lm_eval` itself finds it.
"""

import os
import sys
import traceback
from typing import NoReturn

from smelt_jax import stop
from smelt_jax.cli.main import OUR_CODE
from smelt_jax.host import keep_freed_memory


def command() -> NoReturn:
    """Runs it. What a user can put right is one line, and all of the way there with SMELT_DEBUG=1."""
    keep_freed_memory()  # before jax is imported
    try:
        from smelt_jax.evaluate import harness

        harness.main()
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != 'lm_eval':
            raise
        stop.say('smelt-lm-eval: error: lm-eval is not installed; pip install "smelt_jax[eval]"')
        sys.exit(1)
    except (ValueError, OSError) as error:
        ours = traceback.extract_tb(error.__traceback__)[-1].filename.startswith(OUR_CODE)
        if not ours or os.environ.get('SMELT_DEBUG') == '1':
            raise
        stop.say(f'smelt-lm-eval: error: {error}')
        sys.exit(1)
    sys.exit(0)
