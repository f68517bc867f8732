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


def text(name: str, what: str) -> str:
    """The text of a file. ``what``: the file for a person.

    Raises:
        BadInput: it is not there, not text, or above the limits.
    """
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        return given_file.text(name, what)


def json_object(name: str, what: str) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        BadInput: it is not there, not JSON, not an object, or above the limits.
    """
    written = text(name, what)
    with their_bad_input():
        from ansible_collections.gpuwright.node.plugins.plugin_utils.model import given_file

        document = given_file.from_json(written, f"{what} {name}")
    if not isinstance(document, dict):
        raise BadInput(f"{what} {name} is not a JSON object")
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
