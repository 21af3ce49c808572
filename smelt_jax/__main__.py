"""`python -m smelt_jax VERB` is `smelt VERB`."""

from smelt_jax.cli.main import command

if __name__ == '__main__':
    command()
