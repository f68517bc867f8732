#!/bin/bash
# Every molecule scenario, as many at a time as there are cores; with arguments only the named ones: tests/molecule.sh default
set -euo pipefail

cd "$(dirname "$0")/.."
scenarios=("$@")
if [ ${#scenarios[@]} = 0 ]; then
    for file in molecule/*/molecule.yml; do scenarios+=("$(basename "$(dirname "$file")")"); done
fi

# A bare Debian or Ubuntu has no container engine yet: this installs and starts one, or says why not.
python -c 'from tests.sim import engine; engine.ensure()'

export MOLECULE_GLOB='molecule/*/molecule.yml'
export ANSIBLE_COLLECTIONS_PATH=$PWD/collections
logs=$(mktemp -d)
trap 'rm -rf "$logs" "$GPUWRIGHT_TEST_PAYLOADS"' EXIT
export ANSIBLE_CALLBACK_PLUGINS=$PWD/tests/callback ANSIBLE_CALLBACKS_ENABLED=kept_payloads
GPUWRIGHT_TEST_PAYLOADS=$(mktemp -d)
export GPUWRIGHT_TEST_PAYLOADS

# One scenario, told as a whole when it is through.
one() {
    local scenario=$1 verdict=passed begun
    begun=$(date +%s)
    if ! molecule test --scenario-name "$scenario" >"$logs/$scenario" 2>&1; then
        verdict=FAILED
        touch "$logs/failed"
    fi
    printf -- '--- molecule: %s\n' "$scenario"
    cat "$logs/$scenario"
    printf -- '--- molecule: %s %s after %s s\n' "$scenario" "$verdict" "$(($(date +%s) - begun))"
}

# The longest, distro, is the last by name and begins first.
for scenario in $(printf '%s\n' "${scenarios[@]}" | sort -r); do
    if [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; then wait -n; fi
    printf -- '--- molecule: %s begins\n' "$scenario"
    one "$scenario" &
done
wait
[ ! -e "$logs/failed" ]
