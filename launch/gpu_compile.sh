#!/usr/bin/env bash
# Compiles the GPU kernels, attention among them, for an H100 on a machine without a GPU: two test files with jax's CUDA plugin
# (about 400 MB), which goes into a folder of its own, .venv-cuda-plugin. Sets up .venv first if it is not there.
# Further arguments go to pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cd "$ROOT"
use_venv .venv tested dev 3.11
version=$(.venv/bin/python -c 'import jax; print(jax.__version__)')
folder=.venv-cuda-plugin/$version
if [[ ! -e $folder/complete ]]; then
    quiet_pip .venv --no-deps --upgrade --target "$folder" "jax-cuda13-plugin==$version" "jax-cuda13-pjrt==$version"
    touch "$folder/complete"
fi
PYTHONPATH=$folder exec .venv/bin/python -m pytest tests/kernels/gpu_compile_test.py tests/model/attention_compile_test.py "$@"
