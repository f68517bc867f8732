#!/usr/bin/python3
"""The stand-in nvidia-ctk: `runtime configure` edits the engine's configuration as the real program does; `cdi` writes the
specification of the simulated cards in its layout."""
import json
import os
import subprocess
import sys

VERSION = "@VERSION@"


def option(arguments, name, default=None):
    """The value of --NAME=VALUE or --NAME VALUE; True for a bare flag."""
    for index, word in enumerate(arguments):
        if word == name:
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            return following if following and not following.startswith("-") and default != "flag" else True
        if word.startswith(name + "="):
            return word.split("=", 1)[1]
    return None if default == "flag" else default


def configure(arguments):
    runtime = option(arguments, "--runtime", "docker")
    if runtime != "docker":
        return configure_toml(runtime, option(arguments, "--config", "/etc/containerd/conf.d/99-nvidia.toml"))
    path = option(arguments, "--config", "/etc/docker/daemon.json")
    config = {}
    if os.path.exists(path) and os.path.getsize(path):
        print('time="2026-11-20T12:00:00Z" level=info msg="Loading config from %s"' % path, file=sys.stderr)
        try:
            with open(path) as stream:
                config = json.load(stream)
        except ValueError as error:
            print('time="2026-11-20T12:00:00Z" level=error msg="unable to load config for runtime docker: %s"' % error, file=sys.stderr)
            return 1
    name = option(arguments, "--nvidia-runtime-name", "nvidia")
    config.setdefault("runtimes", {})[name] = {"args": [], "path": option(arguments, "--nvidia-runtime-path", "nvidia-container-runtime")}
    if option(arguments, "--nvidia-set-as-default", "flag") or option(arguments, "--set-as-default", "flag"):
        config["default-runtime"] = name
    if option(arguments, "--cdi.enabled", "flag"):
        config.setdefault("features", {})["cdi"] = True
    text = json.dumps(config, indent=4, sort_keys=True)
    if option(arguments, "--dry-run", "flag"):
        print(text)
        return 0
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(text)
    print('time="2026-11-20T12:00:00Z" level=info msg="Wrote updated config to %s"' % path, file=sys.stderr)
    print('time="2026-11-20T12:00:00Z" level=info msg="It is recommended that docker daemon be restarted."', file=sys.stderr)
    return 0


def configure_toml(runtime, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write('version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
                     '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\n')
    return 0


def smi(*words):
    """The lines that nvidia-smi says; the program ends where it says none."""
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print('time="2026-11-20T12:00:00Z" level=error msg="failed to generate CDI spec: failed to initialize NVML: %s"' % done.stdout.strip(), file=sys.stderr)
        raise SystemExit(1)
    return done.stdout.splitlines()


def cards():
    """UUIDs of the cards by their minor number."""
    return dict(enumerate(line.strip() for line in smi("--query-gpu=uuid", "--format=csv,noheader")))


def parts():
    """UUIDs of the MIG devices by the number of their card, for each card that is in MIG mode: as a whole it is no device (nvcdi)."""
    modes = smi("--query-gpu=mig.mode.current", "--format=csv,noheader")
    found = {number: [] for number, mode in enumerate(modes) if mode.strip() == "Enabled"}
    card = -1
    for line in smi("-L"):
        card += line.startswith("GPU ")
        if line.strip().startswith("MIG ") and card in found:
            found[card].append(line.rsplit("UUID: ", 1)[1].rstrip(")"))
    return found


def edits(numbers, found):
    """What a container gets for some of the cards. Its nvidia-smi knows them by the environment, the real one asks the driver."""
    return {"deviceNodes": [{"path": "/dev/nvidia%d" % number} for number in numbers],
            "env": ["GPUWRIGHT_SIM_CARD_%d=%s" % (number, found[number]) for number in numbers]}


def library():
    """The driver's library, whose name has its version."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.startswith("libcuda.so.") and name.count(".") > 2:
                return os.path.join(folder, name)
    return None


def specification():
    """The CDI specification: each card, or each of its MIG devices (0:1), by its number and by its UUID, and all of them."""
    found, parted = cards(), parts()
    names = [(name, [number]) for number, uuid in found.items() if number not in parted for name in (str(number), uuid)]
    for number, uuids in parted.items():
        names += [(name, [number]) for index, uuid in enumerate(uuids) for name in ("%d:%d" % (number, index), uuid)]
    names += [("all", sorted(found))]
    paths = [("/usr/lib/gpuwright-sim-container/nvidia-smi", "/usr/bin/nvidia-smi"), (library(), library())]
    mounts = [{"containerPath": inside, "hostPath": outside, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}
              for outside, inside in paths if outside]
    return {"cdiVersion": "0.7.0",
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}], "env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": mounts},
            "devices": [{"containerEdits": edits(numbers, found), "name": name} for name, numbers in names],
            "kind": "nvidia.com/gpu"}


def as_yaml(value, indent=""):
    """The lines of a mapping or a list, as the real program's library lays them out."""
    lines = []
    for key, each in value.items():
        if isinstance(each, dict):
            lines += ["%s%s:" % (indent, key), *as_yaml(each, indent + "  ")]
        elif isinstance(each, list):
            lines.append("%s%s:" % (indent, key))
            for item in each:
                inner = as_yaml(item, indent + "  ") if isinstance(item, dict) else ["%s  %s" % (indent, item)]
                lines += [indent + "- " + inner[0].lstrip(), *inner[1:]]
        else:
            lines.append("%s%s: %s" % (indent, key, json.dumps(each) if each.replace(":", "").isdigit() else each))
    return lines


def cdi(arguments):
    found = specification()
    if arguments[:1] == ["list"]:
        print("Found %d CDI devices" % len(found["devices"]))
        print("\n".join("nvidia.com/gpu=" + each["name"] for each in found["devices"]))
        return 0
    text = json.dumps(found) if option(arguments, "--format") == "json" else "---\n" + "\n".join(as_yaml(found)) + "\n"
    path = option(arguments, "--output")
    if path in (None, True, "-"):
        print(text, end="")
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(text)
    return 0


def links(arguments):
    """Links of /dev/char to the cards' nodes; with --create-all those of nodes too that are not there yet."""
    folder = option(arguments, "--dev-char-path", "/dev/char")
    os.makedirs(folder, exist_ok=True)
    for name in sorted(os.listdir("/dev")):
        path = os.path.join("/dev", name)
        if name.startswith("nvidia") and not os.path.isdir(path):
            number = os.stat(path).st_rdev
            link = os.path.join(folder, "%d:%d" % (os.major(number), os.minor(number)))
            if not os.path.islink(link):
                os.symlink(path, link)
    return 0


def main(arguments):
    if "--version" in arguments:
        print("NVIDIA Container Toolkit CLI version %s\ncommit: 0000000000000000000000000000000000000000" % VERSION)
        return 0
    if arguments[:2] == ["runtime", "configure"]:
        return configure(arguments[2:])
    if arguments[:1] == ["cdi"]:
        return cdi(arguments[1:])
    if arguments[:2] == ["system", "create-dev-char-symlinks"]:
        return links(arguments[2:])
    print("nvidia-ctk: the stand-in knows: runtime configure, cdi generate, cdi list, system create-dev-char-symlinks, --version", file=sys.stderr)
    return 1


raise SystemExit(main(sys.argv[1:]))
