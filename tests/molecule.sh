#!/bin/bash
# Every molecule scenario, one after another; with arguments only the named ones: tests/molecule.sh default
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
for scenario in "${scenarios[@]}"; do
    begun=$(date +%s)
    printf -- '--- molecule: %s\n' "$scenario"
    molecule test --scenario-name "$scenario"
    printf -- '--- molecule: %s passed after %s s\n' "$scenario" "$(($(date +%s) - begun))"
done
