#!/usr/bin/python3
"""The stand-in nvidia-ctk: `runtime configure` edits the engine's configuration as the real program does; `cdi` writes a small file."""
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


def uuids():
    done = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print('time="2026-11-20T12:00:00Z" level=error msg="failed to generate CDI spec: failed to initialize NVML: %s"' % done.stdout.strip(), file=sys.stderr)
        raise SystemExit(1)
    return done.stdout.split()


def cdi(arguments):
    names = [name for index, uuid in enumerate(uuids()) for name in (str(index), uuid)] + ["all"]
    if arguments[:1] == ["list"]:
        print("Found %d CDI devices" % len(names))
        print("\n".join("nvidia.com/gpu=" + name for name in names))
        return 0
    text = "---\ncdiVersion: 0.7.0\nkind: nvidia.com/gpu\ndevices:\n" + "".join("  - name: \"%s\"\n    containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n" % name for name in names)
    path = option(arguments, "--output")
    if path in (None, True, "-"):
        print(text, end="")
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(text)
    return 0


def main(arguments):
    if "--version" in arguments:
        print("NVIDIA Container Toolkit CLI version %s\ncommit: 0000000000000000000000000000000000000000" % VERSION)
        return 0
    if arguments[:2] == ["runtime", "configure"]:
        return configure(arguments[2:])
    if arguments[:1] == ["cdi"]:
        return cdi(arguments[1:])
    print("nvidia-ctk: the stand-in knows: runtime configure, cdi generate, cdi list, --version", file=sys.stderr)
    return 1


raise SystemExit(main(sys.argv[1:]))
