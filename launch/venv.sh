# Sourced by the scripts beside it: finds a Python, and keeps a virtual environment equal to a lock file.
# PYTHON=/path/to/python3 in the environment names the Python to use.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# quiet_pip VENV ARGUMENTS: pip install, silent but for errors.
quiet_pip() {
    "$1/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile -qq "${@:2}"
}

# find_python OLDEST: sets `python` to the first interpreter that starts, is at least that new and can make environments.
find_python() {
    local oldest=$1 name path answer tried=''
    local -a candidates=()
    if [[ -n ${PYTHON:-} ]]; then
        candidates=("$PYTHON")
    else
        for name in python3.11 python3.12 python3.13 python3.14 python3 python; do
            while IFS= read -r path; do candidates+=("$path"); done < <(type -aP "$name")
        done
        for path in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/python3; do
            if [[ -x $path ]]; then candidates+=("$path"); fi
        done
    fi
    for path in ${candidates[@]+"${candidates[@]}"}; do
        # Each is tried by running it: a pyenv shim may be there for a version that is not.
        answer=$("$path" - "$oldest" 2>/dev/null <<'PYTHON'
import sys
version = '.'.join(str(part) for part in sys.version_info[:3])
if sys.version_info[:2] < tuple(int(part) for part in sys.argv[1].split('.')):
    sys.stdout.write('%s, older than %s' % (version, sys.argv[1]))
    sys.exit()
try:
    import ensurepip, venv
except ImportError:
    sys.stdout.write('%s without venv and ensurepip (on Debian and Ubuntu: apt install python3-venv)' % version)
    sys.exit()
sys.stdout.write('ok')
PYTHON
        ) || answer='does not start'
        if [[ $answer == ok ]]; then
            python=$path
            return
        fi
        tried+=$'\n'"    $path: $answer"
    done
    die "needs Python $oldest or newer with venv; PYTHON=/path/to/python3 names one. Found:${tried:-$'\n    none'}"
}

# stamp_of PYTHON SET: what an environment depends on: the lock files, the packaging, the Python, the folder.
stamp_of() {
    "$1" - "$ROOT" "$ROOT/setup.py" "$ROOT/launch/lock/$2.txt" "$ROOT/launch/lock/$2-dev.txt" <<'PYTHON'
import hashlib, pathlib, sys
digest = hashlib.sha256((sys.argv[1] + sys.version).encode())
for path in sys.argv[2:]:
    digest.update(pathlib.Path(path).read_bytes())
print(digest.hexdigest())
PYTHON
}

# use_venv FOLDER SET LEVEL OLDEST: makes FOLDER the environment of launch/lock/SET.txt, and for LEVEL dev of SET-dev.txt
# too. The last thing written is its stamp, so that an installation that was killed is done again.
use_venv() {
    local venv=$ROOT/$1 set=$2 level=$3 oldest=$4 mark=$ROOT/$1/smelt-stamp have stamp start=$SECONDS
    local lock=$ROOT/launch/lock/$set.txt
    have=$(cat "$mark" 2>/dev/null) || have=none
    if stamp=$(stamp_of "$venv/bin/python" "$set" 2>/dev/null) && [[ $have == *" $stamp" ]]; then
        [[ $have == "$level "* || $have == 'dev '* ]] && return
    else
        if [[ -d $venv ]] && [[ ! -e $mark ]] && ! rmdir "$venv" 2>/dev/null; then
            die "$venv was not made by this script, and is left alone; move it away and run again"
        fi
        find_python "$oldest"
        if [[ -d $venv ]]; then  # the mark goes last: what is left of a killed removal is still known as ours
            find "$venv" -mindepth 1 -maxdepth 1 ! -name smelt-stamp -exec rm -rf {} +
        fi
        printf 'Setting up %s for %s: a minute or two, once.\n' "$1" "$python"
        mkdir -p "$venv"
        echo unfinished > "$mark"
        "$python" -m venv "$venv" || die "$python -m venv $venv failed; see above"
        stamp=$(stamp_of "$venv/bin/python" "$set")
    fi
    if [[ $level == dev ]]; then lock=$ROOT/launch/lock/$set-dev.txt; fi
    echo unfinished > "$mark"
    quiet_pip "$venv" -r "$lock" || die "pip could not install $lock; see above. Run again, and it starts afresh"
    # compat: a folder on the path. The default, a hook, comes after the current folder, where a clone has the same name.
    quiet_pip "$venv" --no-deps --no-build-isolation --config-settings editable_mode=compat -e "$ROOT" || die "pip could not install $ROOT; see above"
    # On all cores, which pip does not. Some packages carry files for another Python: they do not compile, and need not.
    "$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" || true
    echo "$level $stamp" > "$mark"
    printf '%s is ready after %d s.\n' "$1" $((SECONDS - start))
}
