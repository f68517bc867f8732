# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wish for a MIG layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.wish import Values
from ...rules import Rules
from ...wish import datacentre
from ...wish.reading import Variables, Words


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Fields:
    """The layout's field of a wish: profiles by card."""

    mig: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _read_variables(values: Values, variables: Variables, rules: Rules) -> None:
    del rules
    layout = datacentre.mig_layout(variables.get("mig_layout"))
    if layout:
        values.update(mig=layout)


#: What is no want by these names: see Words.told.
_TOLD = (
    (
        "mig nvidia-mig mig-manager",
        "the layout of MIG is a variable (docs/datacentre.md)",
        ("mig_layout: {all: [1g.10gb]}",),
    ),
)
WORDS = Words("mig", variables=("mig_layout",), of_host=("mig_layout",), read=_read_variables, told=_TOLD)
