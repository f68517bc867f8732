"""Is what was asked for what there is?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.property.naive.tables import below, within

Stack = Mapping[str, Any]


def leaves_out(machine: Any) -> set[str]:
    """The components that are left out on purpose: without a card, and where the driver is somebody else's."""
    driver = {"driver", "driver-modules", "driver-source", "driver-set"}
    toolkits = {
        "cuda",
        "cuda-source",
        "cuda-compat",
        "cudnn",
        "cudnn-source",
        "nccl",
        "nccl-source",
        "tensorrt",
        "tensorrt-source",
        "container-toolkit",
        "container-engine-source",
    }
    if not machine.cards:
        return driver | toolkits | {"dali", "cupy", "vllm"}
    elsewhere = {
        "container": {"container-toolkit", "container-engine-source"},
        "wsl": set(),
        "jetson": toolkits | {"monitoring"},
    }
    return driver | elsewhere[machine.environment] if machine.environment in elsewhere else set()


def unmet(wants: Iterable[str], stack: Stack, left_out: Iterable[str] = ()) -> list[str]:
    """The wants that a stack does not meet exactly."""
    return [f"{want} is not met" for want in wants if component(want) not in left_out and not _met(want, stack)]


def component(want: str) -> str:
    name = re.split(r"[=<>!~\[]", want)[0]
    others = {"torch": "pytorch", "tf": "tensorflow", "ort": "onnxruntime", "onnxruntime-gpu": "onnxruntime"}
    return others.get(name, name)


def _met(want: str, stack: Stack) -> bool:
    name = component(want)
    spec = want[len(re.split(r"[=<>!~]", want)[0]) :]
    version = spec.lstrip("=")
    driver = stack.get("driver", {})
    if name == "driver":
        return bool(driver) and (not version or version in (driver["branch"], driver["version"]))
    if name.startswith("driver-"):
        key = name.removeprefix("driver-")
        # Of a driver that is there and stays, some things are not known.
        return bool(driver) and (driver[key] == version or (driver["adopted"] and key == "set"))
    if name.endswith("-source"):
        return _source_met(name, version, stack)
    if name == "cuda":
        return any(
            not version or within(each.get("release", each["version"]), version) or within(version, each["version"])
            for each in stack.get("cuda", ())
        )
    if name in ("cudnn", "nccl", "tensorrt"):
        found = stack.get(name)
        return found is not None and (not version or within(found["version"], version))
    if name == "cuda-compat":
        return True  # where it is of no use there is none
    if name == "container-toolkit":
        toolkit = stack.get("container_toolkit")
        return toolkit is not None and (not version or toolkit["version_spec"].startswith(f"=={version}"))
    if name == "monitoring":
        exporters = stack.get("monitoring_exporters")
        return exporters is not None and (not version or not exporters["gpu"] or exporters["gpu"]["source"] == version)
    if name == "python":
        return all(each["interpreter"] == version for each in stack.get("frameworks", ()))
    return any(each["name"] == name and _framework_met(want, spec, each) for each in stack.get("frameworks", ()))


def _source_met(name: str, source: str, stack: Stack) -> bool:
    if name == "cuda-source":
        return bool(stack.get("cuda")) and all(each.get("source", "nvidia") == source for each in stack["cuda"])
    library = name.removesuffix("-source")
    if library in ("cudnn", "nccl", "tensorrt"):
        return library in stack and bool(stack[library].get("archives")) == (source == "archive")
    engine = stack.get("container_toolkit", {}).get("engine")
    return engine is not None and engine.get("source", "distro") == source


def _framework_met(want: str, spec: str, found: Mapping[str, Any]) -> bool:
    extra = re.search(r"\[(.*)\]", want)
    if extra and found["variant"] != extra.group(1) and found["cuda"]:
        return False
    if spec.startswith(">="):
        return not below(found["version"], spec[2:])
    version, _plus, variant = spec.lstrip("=").partition("+")
    return (not version or within(found["version"], version)) and variant in ("", found["variant"])
