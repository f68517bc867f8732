"""The programs that components put on nodes, as they lie there, with what a test has to have otherwise in their sources."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS


def script(component: str, replaced: Mapping[str, str]) -> str:
    """The program of a component, with texts of its sources replaced; each of them has to be there."""
    program = COMPONENTS[component].program
    assert program is not None
    text = program.text()
    found = re.search(r'b64decode\("([^"]+)"', text)
    assert found is not None
    sources = zlib.decompress(base64.b64decode(found[1])).decode()
    for old, new in replaced.items():
        # As JSON writes them.
        before, after = json.dumps(old)[1:-1], json.dumps(new)[1:-1]
        assert before in sources, old
        sources = sources.replace(before, after)
    return text.replace(found[1], base64.b64encode(zlib.compress(sources.encode())).decode())
