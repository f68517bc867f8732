from __future__ import annotations

from tests.sim import image

DEB822 = """Types: deb
# a comment
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def test_the_mirror_is_read_from_a_deb822_source() -> None:
    assert image.mirror_of_sources(DEB822) == "http://mirror.invalid/debian"


def test_the_mirror_is_read_from_a_one_line_source() -> None:
    assert (
        image.mirror_of_sources("deb [arch=amd64] http://mirror.invalid/debian/ bookworm main contrib\n")
        == "http://mirror.invalid/debian"
    )


def test_a_vendors_source_is_no_mirror_of_debian() -> None:
    vendor = DEB822.replace("debian-archive-keyring", "vendor").replace("mirror.invalid/debian", "vendor.invalid/apt")
    assert image.mirror_of_sources(vendor) is None
    assert image.mirror_of_sources("deb https://vendor.invalid/apt stable main\n") is None


def test_a_disabled_line_is_not_taken() -> None:
    assert image.mirror_of_sources("# deb http://mirror.invalid/debian bookworm main\n") is None
