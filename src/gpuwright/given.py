"""Files that a person hands in, read by the collection's one loader, and its complaints about input as the command's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuwright import paths
from gpuwright.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def their_bad_input() -> Iterator[None]:
    """The collection's complaints about input, as ours."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput as TheirBadInput

    try:
        yield
    except TheirBadInput as error:
        raise BadInput(str(error), getattr(error, "suggestions", ())) from error


def text(name: str, what: str, most: int = 8 << 20) -> str:
    """The text of a file of so many bytes at most. ``what``: the file for a person.

    Raises:
        BadInput: it is not there, not text, or above the limits.
    """
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        return given_file.text(name, what, most)


def for_ansible(name: str, what: str) -> None:
    """Refuse a file of YAML that Ansible reads.

    Raises:
        BadInput: it is above the limits, or not text.
    """
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        given_file.bounded(given_file.text(name, what), f"{what} {name}")


def json_object(name: str, what: str, most: int = 8 << 20, values: int = 200_000) -> dict[str, object]:
    """The object in a JSON file of so many bytes and values at most.

    Raises:
        BadInput: it is not there, not JSON, not an object, or above the limits.
    """
    return json_text(text(name, what, most), f"{what} {name}", values)


def json_text(written: str, told: str, most: int) -> dict[str, object]:
    """The object in JSON of so many values at most. ``told``: where it stands, for a person.

    Raises:
        BadInput: it is not JSON, not an object, or above the limit.
    """
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        document = given_file.from_json(written, told, most)
    if not isinstance(document, dict):
        raise BadInput(f"{told} is not a JSON object")
    return document


def yaml_mapping(name: str, what: str, holds: str, example: str) -> dict[str, object]:
    """The mapping in a YAML file that people write; empty where nothing is in it. ``holds``: what it is for, with an ``example``.

    Raises:
        BadInput: it is not there, not YAML, not a mapping, or above the limits.
    """
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        written = given_file.text(name, what, given_file.WRITTEN_BY_PEOPLE)
        document = given_file.from_yaml(written, f"{what} {name}")
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadInput(f"{what} {name} must hold {holds}, one `name: value` a line", [example])
    return document
