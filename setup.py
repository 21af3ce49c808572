"""Packaging. Settings of the tools (ruff, mypy, pytest) are in pyproject.toml."""

from pathlib import Path

import setuptools

ROOT = Path(__file__).parent
VERSION = (ROOT / 'smelt_jax' / 'version.py').read_text().split("'")[1]

setuptools.setup(
    name='smelt_jax',
    version=VERSION,
    description='Compute-matched looped mixture-of-experts Transformers: pretraining, annealing, evaluation, scaling laws',
    long_description=(ROOT / 'README.md').read_text(),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.11',
    packages=setuptools.find_packages(include=['smelt_jax*', 'pallas_kernels*', 'experiments*']),
    entry_points={
        'console_scripts': ['smelt = smelt_jax.cli.main:command', 'smelt-lm-eval = smelt_jax.cli.harness:command'],
        'lm_eval.models': ['smelt = smelt_jax.evaluate.harness:Smelt'],  # lm-eval after 0.4.13 reads it
    },
    install_requires=[
        'absl-py>=2.1',
        'array-record>=0.8; sys_platform != "win32"',
        'etils[epath]>=1.9',
        'flax>=0.12',
        'grain>=0.2.15',
        'jax>=0.10.2,<0.13',
        'matplotlib>=3.9',
        'ml-collections>=1.1',
        'numpy>=2.0',
        'optax>=0.2.6',
        'orbax-checkpoint>=0.11.30',
        'pyarrow>=16',
        'rich>=13',
        'scipy>=1.14',
        'tensorboardX>=2.6',
        'tensorstore>=0.1.76',
        'tokenizers>=0.21',
    ],
    extras_require={
        'tpu': ['jax[tpu]'],
        'cuda': ['jax[cuda13]'],
        # In no lock file: torch alone outweighs all the rest. Tests that need it skip without it.
        'hf': ['torch', 'transformers>=4.57'],
        'eval': ['lm-eval>=0.4.13'],
        'dev': [
            'hypothesis>=6.100',
            'libtpu>=0.0.40; sys_platform == "linux" and platform_machine == "x86_64"',  # compiles for TPUs, without one
            'mypy>=1.15',
            'pytest>=8',
            'pytest-xdist>=3.6',
            'ruff>=0.9',
        ],
    },
)
