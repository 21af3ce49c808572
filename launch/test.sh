#!/usr/bin/env bash
# Every check and test: ruff, mypy and the tests, the import rule among them. Sets up .venv first if it is not there.
# Further arguments go to pytest.
#
#     launch/test.sh                    the tested set: jax 0.10.2
#     launch/test.sh --newest           the tests alone, in .venv-newest: Python 3.12 or newer, the newest jax below 0.13
#     launch/test.sh -k packing -x      some tests
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cd "$ROOT"
cores=$(getconf _NPROCESSORS_ONLN)
tests=(-m pytest -n $((cores < 8 ? cores : 8)) --dist loadfile --max-worker-restart 0)

if [[ ${1:-} == --newest ]]; then
    use_venv .venv-newest newest dev 3.12
    exec .venv-newest/bin/python "${tests[@]}" "${@:2}"
fi

use_venv .venv tested dev 3.11
failed=''
.venv/bin/ruff check . || failed+=' "ruff check"'
.venv/bin/ruff format --check . || failed+=' "ruff format"'
.venv/bin/mypy || failed+=' mypy'
.venv/bin/python "${tests[@]}" "$@" || failed+=' pytest'
[[ -z $failed ]] || die "failed:$failed"
