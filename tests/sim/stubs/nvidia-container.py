#!/usr/bin/python3
"""The stand-ins nvidia-container-runtime and nvidia-container-runtime-hook: a container that asks for cards by NVIDIA_VISIBLE_DEVICES gets the
device nodes of the CDI specification. The first edits what the container is made of, as the real one does in its mode jit-cdi, and hands over to
runc; the second one goes into the container that runc is making, as the real one does for `docker run --gpus`.
"""
import json
import os
import stat
import subprocess
import sys


def wished(config):
    """The names of the cards that a container asks for."""
    environment = dict(each.partition("=")[::2] for each in config.get("process", {}).get("env", []))
    names = environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    return [] if names[0] in ("", "void", "none") else names


def edits_for(names):
    """The edits of the specification for some cards, in one."""
    done = subprocess.run(["nvidia-ctk", "cdi", "generate", "--format=json", "--output=-"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    devices = {each["name"]: each["containerEdits"] for each in found["devices"]}
    edits = [found["containerEdits"], *(devices[name] for name in names)]
    return {key: [item for each in edits for item in each.get(key, [])] for key in ("deviceNodes", "env", "mounts")}


def add(config, edits):
    for node in edits["deviceNodes"]:
        number = os.stat(node["path"]).st_rdev
        device = {"path": node["path"], "type": "c", "major": os.major(number), "minor": os.minor(number), "fileMode": 0o666, "uid": 0, "gid": 0}
        linux = config.setdefault("linux", {})
        linux.setdefault("devices", []).append(device)
        rule = {"allow": True, "type": "c", "major": device["major"], "minor": device["minor"], "access": "rwm"}
        linux.setdefault("resources", {}).setdefault("devices", []).append(rule)
    config["process"]["env"] += edits["env"]
    config["mounts"] += [{"destination": each["containerPath"], "source": each["hostPath"], "type": "bind", "options": each["options"]}
                         for each in edits["mounts"]]


def bundle_of(arguments):
    for index, word in enumerate(arguments):
        if word in ("--bundle", "-b"):
            return arguments[index + 1]
        if word.startswith("--bundle="):
            return word.split("=", 1)[1]
    return os.getcwd()


def runtime(arguments):
    if "create" in arguments or "run" in arguments:
        path = os.path.join(bundle_of(arguments), "config.json")
        with open(path) as stream:
            config = json.load(stream)
        names = wished(config)
        if names:
            add(config, edits_for(names))
            with open(path, "w") as stream:
                json.dump(config, stream)
    os.execvp("runc", ["runc", *arguments])


def hook():
    state = json.load(sys.stdin)
    with open(os.path.join(state["bundle"], "config.json")) as stream:
        config = json.load(stream)
    names = wished(config)
    if not names:
        return
    edits = edits_for(names)
    nodes = [(node["path"], os.stat(node["path"]).st_rdev) for node in edits["deviceNodes"]]
    root = os.path.join(state["bundle"], config["root"]["path"])
    with open("/usr/lib/gpuwright-sim-container/nvidia-smi") as stream:
        program = stream.read()
    with open("/proc/%d/ns/mnt" % state["pid"]) as space:
        os.setns(space.fileno(), os.CLONE_NEWNS)
    for path, number in nodes:
        os.mknod(root + path, stat.S_IFCHR | 0o666, number)
    os.makedirs(root + "/usr/bin", exist_ok=True)
    # What the container's environment tells otherwise; that one is decided already.
    known = "".join("export %s\n" % each for each in edits["env"])
    with open(root + "/usr/bin/nvidia-smi", "w") as stream:
        stream.write(program.replace("#!/bin/sh\n", "#!/bin/sh\n" + known, 1))
    os.chmod(root + "/usr/bin/nvidia-smi", 0o755)


if os.path.basename(sys.argv[0]).endswith("-hook"):
    hook()
else:
    runtime(sys.argv[1:])
