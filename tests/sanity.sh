#!/bin/bash
# ansible-test sanity on the collection as its users have it: built, and installed from the tarball. Nothing of src/ and tests/ is in
# it, so no ignore file is needed. Arguments are handed to ansible-test, for example: tests/sanity.sh --test validate-modules
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
collection=$work/ansible_collections/gpuwright/node

ansible-galaxy collection build "$root" --output-path "$work" >/dev/null
ansible-galaxy collection install --offline --force --collections-path "$work" "$work"/gpuwright-node-*.tar.gz >/dev/null

# ansible-test lists the files of a collection with git.
cd "$collection"
git init --quiet
git add --all

# The test `import` loads each plugin in an environment of its own and fetches pip's installer for it from a server of Ansible's.
# Python brings pip itself: a file in ansible-test's cache with the name that it looks for is used instead. The cache lies in the
# home, and ansible-test passes no variables of pip's on: this home is one of ours with the user's own pip settings in it. It stays, since
# the environments of the tests are in it; ansible-test makes them anew where what they need is another.
home=$root/.cache/sanity
mkdir -p "$home/.ansible/test/cache"
exec 9>"$home/lock"
flock 9 # of two at a time the second waits
for entry in .config .cache .pip; do
    if [ -e "$HOME/$entry" ]; then ln -sfn "$HOME/$entry" "$home/$entry"; fi
done
pip=$(python - <<'EOF'
import pathlib
import re

import ansible_test

source = pathlib.Path(*ansible_test.__path__, "_internal", "python_requirements.py").read_text(encoding="utf-8")
print(re.search(r"pip='([\d.]+)'", source)[1].replace(".", "_"))
EOF
)
printf 'import ensurepip\nensurepip.bootstrap()\n' >"$home/.ansible/test/cache/get_pip_$pip.py"
export HOME=$home

# Half of what it prints are pip's words about the tools that it installs: told in full only where something was found.
log=$work/sanity.log
if ! ansible-test sanity --python "$python" --requirements --color no "$@" >"$log" 2>&1; then
    cat "$log"
    exit 1
fi
grep -E '^(Running|WARNING: (Required|Skipp))' "$log"
