#!/usr/bin/env bash
# Makes the lock files anew from setup.py: in fresh environments, the newest of everything that setup.py allows.
#
#     launch/lock.sh tested     jax 0.10.2 on Python 3.11
#     launch/lock.sh newest     the newest jax below 0.13 on Python 3.12 or newer
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

set=${1:-}
case $set in
    tested) oldest=3.11 jax='jax==0.10.2' ;;
    newest) oldest=3.12 jax='jax<0.13' ;;
    *) die "say which set: tested or newest" ;;
esac
find_python "$oldest"
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$python" -m venv "$venv"

freeze() { "$venv/bin/python" -m pip freeze --disable-pip-version-check --all --exclude pip --exclude smelt_jax; }

about=$("$venv/bin/python" -c 'import platform; print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")')
quiet_pip "$venv" "$jax" 'setuptools>=77' "$ROOT"
freeze > "$venv/run"
quiet_pip "$venv" "$jax" "$ROOT[dev]"
freeze > "$venv/dev"
{
    echo "# What smelt runs on: $about. Made by: launch/lock.sh $set"
    cat "$venv/run"
} > "$ROOT/launch/lock/$set.txt"
{
    echo "# What its tests need besides. Made by: launch/lock.sh $set"
    echo "-r $set.txt"
    grep -vxF -f "$venv/run" "$venv/dev"
} > "$ROOT/launch/lock/$set-dev.txt"
