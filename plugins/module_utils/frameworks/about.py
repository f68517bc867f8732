# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every framework says of itself: how it is called, what may be asked of it, and the program that proves it."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Tuple

CPU = "cpu"


class About(NamedTuple):
    """A framework as it is called, asked for and proven. Which wheels run where is in plugin_utils/components/frameworks/resolve/.

    Attributes:
        name: what `--want` takes; the environment is a directory of this name.
        title: what people call it.
        package: what pip and messages call it.
        module: what an import names.
        program: what proves it, in Python, behind the head of measure/framework.py.
        releases: the table of compat/ with its releases, and the rows in it.
        aliases: other names that `--want` takes.
        variants: the column of a release that names its variants; "" where they are rows of the table `variants`.
        variant_in_name: a name with a variant in it, as a regular expression with one group.
        local: whether a variant is a local version (torch==2.8.0+cu128) and no part of the name (tensorflow[and-cuda]).
        extras: the variants that may be asked for in brackets.
        named: the name with a variant, where that is no local version.
        cpu: whether it has wheels for the processor alone.
        cpu_only: whether it computes on the processor alone, whatever cards there are.
        listed: whether `gpuwright gpus`, docs/matrix.md and a new wish file show it.
        example: how it is asked for in a wish file; "" for its name.
        one_of: packages of which an environment has one set, as a regular expression: what another variant left there is loaded too.
        computes: what its proof computes on a device.
        loads: whether the cards are loaded and measured through it (framework_load).
        environment: variables of the process that proves it.
        for_cards: the variant that a project's file has to name where there are cards, since the package of the plain name has no CUDA.
    """

    name: str
    title: str
    package: str
    module: str
    program: str
    releases: Tuple[str, str]
    aliases: Tuple[str, ...] = ()
    variants: str = ""
    variant_in_name: str = ""
    local: bool = False
    extras: Tuple[str, ...] = ()
    named: str = "{name}[{variant}]"
    cpu: bool = True
    cpu_only: bool = False
    listed: bool = True
    example: str = ""
    one_of: str = ""
    computes: str = "a product of matrices"
    loads: bool = False
    environment: Mapping[str, str] = {}
    for_cards: str = ""

    @property
    def one_build(self) -> bool:
        """Whether a release has one build with CUDA: then its variant is no choice."""
        return not self.local and len(self.extras) < 2

    def with_variant(self, variant: Optional[str]) -> str:
        """The name as `--want` takes it, with a variant that is part of it: tensorflow[and-cuda]."""
        plain = not variant or self.local or (variant == CPU and CPU not in self.extras)
        return self.name if plain else self.named.format(name=self.name, variant=variant)

    def asked(self, version: str, variant: Optional[str]) -> str:
        """One version in one variant, as `--want` takes it: pytorch=2.7.0+cu128, tensorflow=2.15.1."""
        if self.local:
            return f"{self.name}={version}" + (f"+{variant}" if variant else "")
        return f"{self.with_variant(variant)}{'=' if self.one_build else '=='}{version}"

    def pinned(self, version: str, variant: Optional[str]) -> str:
        """One version in one variant, as pip writes it: torch==2.14.1+cu130, tensorflow[and-cuda]==2.15.1."""
        if self.local and variant:
            return f"{self.package}=={version}+{variant}"
        return f"{self.with_variant(variant)}=={version}"
