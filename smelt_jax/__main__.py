"""`python -m smelt_jax VERB` is `smelt VERB`."""

import sys

from smelt_jax.cli.main import main

if __name__ == '__main__':
    sys.exit(main())
