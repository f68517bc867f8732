#!/usr/bin/python
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_facts
short_description: Observe a machine for its GPU stack without changing it
version_added: "0.1.0"
description:
  - Answers in one read-only call everything that decides about a GPU stack. Operating system, kernels (running and next),
    PCI devices, driver, CUDA, containers, Python environments, disks, package manager, services, seals and the last proof.
  - What could not be seen is C(null) and named in C(unknown) with the reason. It never counts as absent.
  - It starts nothing. C(nvidia-smi) is run only where its module is loaded, C(docker) only where it runs and its images are asked for, and
    C(apt) not at all.
options:
  root:
    description: Root of the tree to observe. With another one than C(/), programs run only when they can be told that root.
    type: path
    default: /
  full:
    description: Look deeper where it takes longer, even where a seal is good.
    type: bool
    default: false
  timeout:
    description: Seconds that each external program may take.
    type: float
    default: 20
  environments:
    description: Paths of virtual environments to look at, beside those in seals and below C(/opt/gpuwright).
    type: list
    elements: path
    default: []
  history:
    description: Tell all that the node keeps to find its way back, the drivers that worked with their packages and what gpuwright brought.
    type: bool
    default: false
  initramfs:
    description:
      - List what is inside the initramfs of the next kernel, where no good seal answers for it. That takes seconds, because the listing
        unpacks it; the action M(gpuwright.node.plan) asks for it, the looks of the roles do not need it.
    type: bool
    default: false
  images:
    description:
      - List the images that Docker, where it runs, and Podman have. The roles and the action M(gpuwright.node.plan) ask for it where
        images are wished.
    type: bool
    default: false
  ports:
    description:
      - Tell what listens on these TCP ports, who it is, and whether it answers as an exporter of Prometheus. The action
        M(gpuwright.node.plan) asks for those where exporters are wished.
    type: list
    elements: int
    default: []
  certificate:
    description: Tell whether this certificate can be served with O(key). Only together with O(ports).
    type: path
  key:
    description: The key of O(certificate).
    type: path
  user:
    description: Look at the records and environments of the user who runs it, in the user's home, instead of root's.
    type: bool
    default: false
extends_documentation_fragment:
  - gpuwright.node.gate
attributes:
  check_mode:
    description: Runs in check mode without changing anything.
    support: full
  diff_mode:
    description: Returns what would change.
    support: none
author:
  - gpuwright contributors (@gpuwright)
"""

EXAMPLES = r"""
- name: Observe the machine
  gpuwright.node.node_facts:
  register: observation

- name: Observe the tree of an image
  gpuwright.node.node_facts:
    root: /mnt/image
"""

RETURN = r"""
facts:
  description: The observation. The collection's docs/facts.md has all keys.
  returned: always
  type: dict
  contains:
    schema:
      description: "Version of this document."
      returned: always
      type: int
    root:
      description: "Root of the tree that was observed."
      returned: always
      type: str
    privileged:
      description: "Whether the observer was root."
      returned: always
      type: bool
    simulated:
      description: "Whether the node is a simulated one."
      returned: always
      type: bool
    hostname:
      description: "Name of the machine."
      returned: always
      type: str
    time:
      description: "When it was observed."
      returned: always
      type: str
    os:
      description: "Operating system."
      returned: always
      type: dict
      contains:
        id:
          description: "The id of a system."
          returned: always
          type: str
        version:
          description: "The version of a system."
          returned: always
          type: str
        codename:
          description: "The code name of a system."
          returned: always
          type: str
        name:
          description: "Name for people."
          returned: always
          type: str
        family:
          description: "Family of the package manager."
          returned: always
          type: str
        arch:
          description: "The architecture of a machine."
          returned: always
          type: str
        glibc:
          description: "Version of the C library."
          returned: always
          type: str
    environment:
      description: "Kind of machine."
      returned: always
      type: dict
      contains:
        kind:
          description: "What the system runs on."
          returned: always
          type: str
        detail:
          description: "Hypervisor, container engine or board."
          returned: always
          type: str
        systemd:
          description: "Whether systemd manages the services."
          returned: always
          type: bool
        user_namespace:
          description: "Whether root of this container is another user outside (user_namespaces(7)); absent where none is seen."
          returned: where it applies
          type: bool
    boot:
      description: "How the system was booted."
      returned: always
      type: dict
      contains:
        id:
          description: "Id of this boot."
          returned: always
          type: str
        secure_boot:
          description: "Whether Secure Boot is enforced."
          returned: always
          type: bool
        signing_key:
          description: "Key with which DKMS signs modules; null without Secure Boot."
          returned: always
          type: dict
        cmdline:
          description: "Command line of the kernel."
          returned: always
          type: str
    kernel:
      description: "Kernels and NVIDIA's module for them."
      returned: always
      type: dict
      contains:
        running:
          description: "Release of the running kernel."
          returned: always
          type: str
        next:
          description: "Release of the kernel that boots next."
          returned: always
          type: str
        next_source:
          description: "How that is known."
          returned: always
          type: str
        installed:
          description: "Releases of the installed kernels, oldest first."
          returned: always
          type: list
          elements: str
        headers:
          description: "Releases with headers, oldest first."
          returned: always
          type: list
          elements: str
        compiler:
          description: "Compilers."
          returned: always
          type: dict
        loaded:
          description: "Loaded modules of interest."
          returned: always
          type: dict
        available:
          description: "Modules that the next kernel has."
          returned: always
          type: dict
        may_boot:
          description: "NVIDIA's module, or null, for each kernel that may boot by itself."
          returned: always
          type: dict
        unlisted:
          description: "NVIDIA's module for the next kernel that is on disk and not in the list of its modules; absent where there is none."
          returned: where it applies
          type: str
        kept_out:
          description: "What keeps NVIDIA's module from being loaded; absent where nothing does."
          returned: where it applies
          type: list
          elements: dict
        initramfs:
          description: "Initramfs of the next kernel."
          returned: always
          type: dict
    pci:
      description: "PCI devices."
      returned: always
      type: dict
      contains:
        gpus:
          description: "NVIDIA cards that this system drives."
          returned: always
          type: list
          elements: dict
        nvswitches:
          description: "NVSwitches."
          returned: always
          type: list
          elements: dict
        other_gpus:
          description: "Cards of AMD and Intel."
          returned: always
          type: list
          elements: dict
        reserved:
          description: "NVIDIA cards that are reserved for virtual machines."
          returned: always
          type: list
          elements: dict
        peers:
          description: "What is between the cards; absent where there are no two."
          returned: where it applies
          type: dict
        virtual_functions:
          description: "Number of virtual functions of NVIDIA cards (SR-IOV)."
          returned: always
          type: int
        nvlink5:
          description: "Whether an InfiniBand function manages an NVLink fabric."
          returned: always
          type: bool
        network_adapters:
          description: "PCI addresses of Mellanox's adapters."
          returned: always
          type: list
          elements: str
        removed_by:
          description: "Rules of udev that take NVIDIA's cards off the bus; absent where none does."
          returned: where it applies
          type: list
          elements: str
        vgpus:
          description: "Those of the cards that are virtual GPUs."
          returned: always
          type: list
          elements: dict
    display:
      description: "Desktop and screens."
      returned: always
      type: dict
      contains:
        desktop:
          description: "Whether a desktop is installed."
          returned: always
          type: bool
        nvidia_screens:
          description: "PCI addresses of the NVIDIA cards that drive a screen."
          returned: always
          type: list
          elements: str
    driver:
      description: "NVIDIA driver."
      returned: always
      type: dict
      contains:
        owner:
          description: "Who brought the driver."
          returned: always
          type: str
        source:
          description: "Where its packages come from."
          returned: always
          type: str
        packages:
          description: "Packages of the driver, with their versions."
          returned: always
          type: dict
        loaded_version:
          description: "Version of the loaded module."
          returned: always
          type: str
        loaded_modules:
          description: "Kind of the loaded modules."
          returned: always
          type: str
        user_version:
          description: "Version of the user-space libraries."
          returned: always
          type: str
        libcuda:
          description: "Path of libcuda."
          returned: always
          type: str
        nvidia_smi:
          description: "Path of nvidia-smi."
          returned: always
          type: str
        loader:
          description: "Each libcuda.so.1 that a program may get, in the order in which the loader takes them; absent without a driver."
          returned: where it applies
          type: list
          elements: dict
        nodes:
          description: "Device nodes that CUDA opens; absent without a driver."
          returned: where it applies
          type: list
          elements: dict
        makes_nodes:
          description: "Whether nvidia-modprobe makes device nodes for programs of users, and loads nvidia-uvm; absent without a driver."
          returned: where it applies
          type: bool
        keeps_memory:
          description: "Whether the loaded driver keeps the memory of its cards while the machine sleeps; absent where it does not tell."
          returned: where it applies
          type: bool
        strays:
          description: "Libraries of another build, which an interrupted package manager left and no package has."
          returned: where it applies
          type: list
          elements: str
        image:
          description: "Who else looks after the driver."
          returned: always
          type: dict
        lock:
          description: "What holds the driver's version."
          returned: always
          type: dict
    dkms:
      description: "DKMS."
      returned: always
      type: dict
      contains:
        failed:
          description: "Builds of NVIDIA's module that failed."
          returned: always
          type: list
          elements: dict
        without_source:
          description: "Modules of DKMS whose source is gone, where it has one of NVIDIA's: its directories of them."
          returned: always
          type: list
          elements: str
        kernels:
          description: "Kernels with a module built by DKMS, oldest first."
          returned: always
          type: list
          elements: str
        boot_entries:
          description: "Entry of the boot menu for each kernel, where a build failed."
          returned: always
          type: dict
    smi:
      description: "Answer of nvidia-smi; null where it was not run."
      returned: always
      type: dict
      contains:
        rc:
          description: "Exit status; null where it did not run to its end."
          returned: always
          type: int
        seconds:
          description: "How long it took (s)."
          returned: always
          type: float
        error:
          description: "Why there is no usable answer."
          returned: always
          type: str
        data:
          description: "Its document."
          returned: always
          type: dict
        mig_devices:
          description: "MIG profiles by UUID of the card."
          returned: where it applies
          type: dict
    cuda:
      description: "CUDA toolkits and cuDNN."
      returned: always
      type: dict
      contains:
        toolkits:
          description: "CUDA toolkits, oldest first."
          returned: always
          type: list
          elements: dict
        cudnn:
          description: "CuDNN libraries."
          returned: always
          type: list
          elements: dict
        default:
          description: "What /usr/local/cuda is."
          returned: always
          type: dict
        runfiles:
          description: "Toolkits that gpuwright brought by a file of NVIDIA's."
          returned: always
          type: list
          elements: dict
        visible:
          description: "Files for all users that say which cards CUDA shows; absent where none does."
          returned: where it applies
          type: list
          elements: dict
        leading:
          description: "Libraries that every login's LD_LIBRARY_PATH puts before those of Python's wheels; absent where there is none."
          returned: where it applies
          type: list
          elements: dict
        on_path:
          description: "Files for all users that put a toolkit below /usr/local into PATH; absent where none does."
          returned: where it applies
          type: list
          elements: str
        archives:
          description: "Archives of libraries that gpuwright put into toolkits."
          returned: always
          type: list
          elements: dict
        modulefiles:
          description: "Modulefiles of CUDA, for Lmod and environment-modules."
          returned: always
          type: dict
    containers:
      description: "Container engines and NVIDIA's toolkit for them."
      returned: always
      type: dict
      contains:
        docker:
          description: "Docker."
          returned: always
          type: dict
        kubernetes:
          description: "Kubernetes that brings a containerd of its own."
          returned: where it applies
          type: dict
        toolkit:
          description: "NVIDIA Container Toolkit."
          returned: always
          type: dict
        containerd:
          description: "Containerd."
          returned: always
          type: dict
        podman:
          description: "Podman."
          returned: always
          type: dict
        rootless:
          description: "What containers of users without root need."
          returned: always
          type: dict
        images:
          description: "Images of each engine, with their registries."
          returned: always
          type: dict
        runtime:
          description: "Configuration of NVIDIA's container runtime; absent where there is none."
          returned: where it applies
          type: dict
        devices_denied:
          description: "Whether SELinux keeps containers from device nodes (container_use_devices); absent where it has no such switch."
          returned: where it applies
          type: bool
        cdi:
          description: "What engines find the cards by."
          returned: always
          type: dict
    python:
      description: "Python interpreters."
      returned: always
      type: dict
      contains:
        interpreters:
          description: "Interpreters of the system, oldest first."
          returned: always
          type: list
          elements: dict
        venv:
          description: "Whether python3 can make virtual environments."
          returned: always
          type: bool
    environments:
      description: "Virtual environments by path."
      returned: always
      type: dict
    disks:
      description: "File systems."
      returned: always
      type: list
      elements: dict
    names:
      description: "How addresses of names are found (DNS)."
      returned: where it applies
      type: dict
      contains:
        servers:
          description: "Servers that are asked."
          returned: always
          type: list
          elements: str
        hosts:
          description: "Names that the machine knows itself."
          returned: always
          type: list
          elements: str
        problem:
          description: "Why nobody can be asked."
          returned: always
          type: str
    packages:
      description: "Package manager."
      returned: always
      type: dict
      contains:
        manager:
          description: "Package manager."
          returned: always
          type: str
        interrupted:
          description: "Whether an installation was interrupted."
          returned: always
          type: bool
        interrupted_detail:
          description: "What it left."
          returned: always
          type: str
        busy:
          description: "Process that changes packages now."
          returned: always
          type: str
        broken_sources:
          description: "What cannot be read of the package sources."
          returned: where it applies
          type: list
          elements: str
        gone_sources:
          description: "Package sources in directories that are not there (apt)."
          returned: where it applies
          type: list
          elements: str
        hides:
          description: "What keeps packages from being installed: pins of negative priority (apt), exclusions (dnf)."
          returned: where it applies
          type: list
          elements: dict
        holds:
          description: "Held packages."
          returned: always
          type: list
          elements: str
        sources:
          description: "Package sources."
          returned: always
          type: list
          elements: dict
        silent_proxies:
          description: "Proxies on this machine that apt is told to go through and that take no connection (apt)."
          returned: where it applies
          type: list
          elements: dict
        installed:
          description: "Installed packages of interest, with their versions."
          returned: always
          type: dict
        duplicates:
          description: "Packages that are there in two versions (dnf)."
          returned: where it applies
          type: list
          elements: str
        repair_removes:
          description: "Packages that finishing an interrupted transaction would remove (apt); absent where apt did not say."
          returned: where it applies
          type: list
          elements: dict
        streams:
          description: "Enabled module streams (dnf)."
          returned: where it applies
          type: dict
        disabled_modules:
          description: "Disabled modules, whose packages are hidden (dnf)."
          returned: where it applies
          type: list
          elements: str
    services:
      description: "Units of systemd."
      returned: always
      type: dict
    fabric:
      description: "NVSwitch fabric and RDMA."
      returned: always
      type: dict
      contains:
        manager_stale:
          description: "Whether the running Fabric Manager is another program than the one on disk."
          returned: always
          type: bool
        modules_loaded:
          description: "Loaded modules of interest."
          returned: always
          type: list
          elements: str
        modules_at_boot:
          description: "Modules of interest that are loaded at each boot."
          returned: always
          type: list
          elements: str
        peermem_module:
          description: "Name of nvidia-peermem for the next kernel."
          returned: always
          type: str
        link_layers:
          description: "What the ports of RDMA adapters speak."
          returned: where it applies
          type: list
          elements: str
    in_use:
      description: "What runs that a change would end."
      returned: always
      type: dict
      contains:
        holders:
          description: "Processes that hold cards, without those that are known to compute nothing."
          returned: always
          type: list
          elements: dict
        containers:
          description: "Running containers."
          returned: always
          type: list
          elements: dict
        working:
          description: "Builds, pulls and other work of container engines."
          returned: always
          type: list
          elements: dict
        docker_clients:
          description: "Connections that Docker has with clients."
          returned: always
          type: int
        jobs:
          description: "Steps of Slurm's jobs."
          returned: always
          type: list
          elements: str
        unread:
          description: "Why not all of it could be seen; null where it was."
          returned: always
          type: str
    sessions:
      description: "Sessions of users."
      returned: always
      type: dict
      contains:
        display:
          description: "Whether a graphical session is open."
          returned: always
          type: bool
    monitoring:
      description: "What is where exporters are wished; only where the look asks for it."
      returned: where it applies
      type: dict
      contains:
        listeners:
          description: "What listens on their ports."
          returned: always
          type: list
          elements: dict
        drop_ins:
          description: "Units that a drop-in of gpuwright's changes."
          returned: always
          type: list
          elements: str
        certificate:
          description: "Certificate that is wished for them, with its key; null where none is, and where it could not be read."
          returned: always
          type: dict
    monitoring_server:
      description: "Server of metrics that gpuwright set up; only where there is one."
      returned: where it applies
      type: dict
      contains:
        files:
          description: "What was written for it."
          returned: always
          type: list
          elements: str
        prometheus:
          description: "Prometheus."
          returned: always
          type: dict
        alertmanager:
          description: "Alertmanager."
          returned: always
          type: dict
        grafana:
          description: "Grafana; null where it is not gpuwright's."
          returned: always
          type: dict
        targets:
          description: "Exporters that Prometheus asks; null where it does not say."
          returned: always
          type: list
          elements: dict
    firewall:
      description: "Firewalls that can be opened; null where only root could see them. Only where the look asks for it."
      returned: where it applies
      type: dict
      contains:
        tools:
          description: "Those that are installed."
          returned: always
          type: list
          elements: dict
        others:
          description: "Who else has rules where neither of them is active."
          returned: always
          type: list
          elements: str
    user:
      description: "Who works without root; only where the look is one at what is the user's own."
      returned: where it applies
      type: dict
      contains:
        name:
          description: "Name of the user."
          returned: always
          type: str
        environments:
          description: "Where the user's environments are made."
          returned: always
          type: str
        records:
          description: "Where the user's records are."
          returned: always
          type: list
          elements: str
        obstacle:
          description: "Why the user cannot make environments where they are wished."
          returned: always
          type: str
    seals:
      description: "Seals by component."
      returned: always
      type: dict
    proof:
      description: "Record of the last proof."
      returned: always
      type: dict
    lock:
      description: "Lock of the run at work."
      returned: always
      type: dict
    history:
      description: "What the node keeps to find its way back."
      returned: always
      type: dict
      contains:
        drivers:
          description: "Versions of the drivers that worked, newest first."
          returned: always
          type: list
          elements: str
        failed:
          description: "Drivers that a run returned from, newest first."
          returned: always
          type: list
          elements: dict
        original:
          description: "Driver that was there before gpuwright."
          returned: where it applies
          type: dict
        proven:
          description: "Version of the driver that was proven last."
          returned: where it applies
          type: str
        failing:
          description: "Checks that did not pass before a driver that worked gave way, by its version; none of one that no record tells of."
          returned: where it applies
          type: dict
        states:
          description: "Drivers that worked, newest first."
          returned: where it applies
          type: list
          elements: dict
        brought:
          description: "Packages that calls of gpuwright brought, as the package manager's log says."
          returned: where it applies
          type: list
          elements: str
        unproven:
          description: "Packages of which nobody can say whether gpuwright brought them; they stay."
          returned: where it applies
          type: list
          elements: str
        settings:
          description: "Packages that gpuwright brought and whose settings lay there before; these stay."
          returned: where it applies
          type: list
          elements: str
        files:
          description: "Files that gpuwright wrote and that are there."
          returned: where it applies
          type: list
          elements: str
        environments:
          description: "Virtual environments that gpuwright made."
          returned: where it applies
          type: list
          elements: str
        streams:
          description: "Module streams of dnf that were enabled before the first run."
          returned: where it applies
          type: dict
        made:
          description: "Directories with data of users that a program made which gpuwright brought."
          returned: where it applies
          type: list
          elements: str
        services:
          description: "Units that are sealed."
          returned: where it applies
          type: list
          elements: str
        components:
          description: "Components that are sealed."
          returned: where it applies
          type: list
          elements: str
        recorded:
          description: "Whether the record is there of what was brought."
          returned: where it applies
          type: bool
        copies:
          description: "Kept package files."
          returned: where it applies
          type: list
          elements: str
    unknown:
      description: "Reason by fact for what could not be seen."
      returned: always
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpuwright.node.plugins.module_utils.observe import machine


def main() -> None:
    """Read the options, observe, answer. The actions of this collection send the same without this shell, see actions/script.py."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "full": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": machine.TIMEOUT},
            "environments": {"type": "list", "elements": "path", "default": []},
            "history": {"type": "bool", "default": False},
            "initramfs": {"type": "bool", "default": False},
            "images": {"type": "bool", "default": False},
            "ports": {"type": "list", "elements": "int", "default": []},
            "certificate": {"type": "path"},
            # What it names is no secret.
            "key": {"type": "path", "no_log": False},
            "user": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    answer = machine.answer(module.params)
    if answer.get("failed"):
        module.fail_json(msg=answer["msg"])
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
