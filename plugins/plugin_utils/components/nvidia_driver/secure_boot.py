# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules that are built on the machine under Secure Boot: the kernel takes them only where their key is enrolled.

Enrolling needs a person at the console: the firmware asks for a password there, once, before any system runs. So the node is
refused with the steps before anything is installed, or where the key already waits, finished up to that boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...resolver.machine import served
from ...rules import load_rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, KernelModule, SigningKey
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack


def key_state(facts: Facts) -> str | None:
    """State of the key that would sign the modules (see module_utils/observe/signing_key.py); None where it does not matter."""
    boot = facts["boot"]
    key = boot["signing_key"] if boot["secure_boot"] else None
    return key["state"] if key else None


def waits_for_console(facts: Facts, driver: DriverStack) -> str | None:
    """Why a boot with a person at the console is due: the modules' key waits to be enrolled. None where it is not."""
    if driver.get("build") != "dkms" or facts["driver"]["loaded_version"] is not None or key_state(facts) != "pending":
        return None
    return (
        "the key that signs the modules waits to be enrolled: at the next boot somebody at the console has to choose 'Enroll MOK' and "
        "type the password that was given to mokutil"
    )


def refusal(facts: Facts, driver: DriverStack) -> tuple[str, str] | None:
    """Why modules that are built here would not load, and the steps; None where they would, or where nobody knows."""
    if driver.get("build") != "dkms" or driver.get("adopted") or facts["driver"]["loaded_version"] is not None:
        return None
    state, key = key_state(facts), facts["boot"]["signing_key"]
    if key is None or state not in ("absent", "not-enrolled"):
        return None
    path = str(key["path"])
    cause = f"DKMS has no key yet ({path})" if state == "absent" else f"the key {path} is not enrolled"
    text = f"Secure Boot is on and the modules would be built and signed on this machine, but {cause}: the kernel would reject them"
    return text, "; ".join([*_steps(facts, path, absent=state == "absent"), *_ways_out(facts)])


def _steps(facts: Facts, path: str, *, absent: bool) -> list[str]:
    packages = (
        "apt-get install dkms mokutil openssl"
        if facts["os"]["family"] == "debian"
        else "dnf install dkms mokutil openssl"
    )
    make = "update-secureboot-policy --new-key" if facts["os"]["id"] == "ubuntu" else "dkms generate_mok"
    steps = [
        packages,
        *([make] if absent else []),
        f"mokutil --import {path} (it asks for a password that is needed once)",
    ]
    numbered = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    last = len(numbered)
    return [
        *numbered,
        f"{last + 1}. reboot, at the console choose 'Enroll MOK', 'Continue', 'Yes', type the password, reboot",
        f"{last + 2}. run again",
    ]


def _ways_out(facts: Facts) -> list[str]:
    """Other ways: modules that the distribution has signed, where it has any."""
    rules = load_rules()
    system, _derivative = served(f"{facts['os']['id']}-{facts['os']['version']}", rules)
    family = next((row["family"] for row in rules["systems"]["rows"] if row["os"] == system), None)
    signed = any(
        row["from"] == "distro" and row["family"] == family and row["build"] == "prebuilt-signed"
        for row in rules["packages"]["driver"]
    )
    return ["or take the distribution's signed modules: driver-source=distro"] if signed else []


def unaccepted(module: KernelModule | None, key: SigningKey | None) -> dict[str, str] | None:
    """Why the kernel rejects the module that was built on the machine, in the words of a check; None where it does not, or where
    nobody knows.
    """
    if (
        module is None
        or key is None
        or "/dkms/" not in module["path"]
        or key["state"] not in ("pending", "not-enrolled")
    ):
        return None
    if key["state"] == "pending":
        return {
            "reason": f"Secure Boot is on, and the key {key['path']} that signs the module waits to be enrolled",
            "action": "reboot",
            "remedy": "reboot with somebody at the console, choose 'Enroll MOK' and type the password that was given to mokutil",
        }
    return {
        "reason": f"Secure Boot is on, and the key {key['path']} that signs the module is not enrolled",
        "action": "configure",
        "remedy": f"mokutil --import {key['path']}, reboot, choose 'Enroll MOK' at the console; or signed modules: driver-source=distro",
    }
