"""A stand-in for Jupyter's client: it finds a kernel by its name where that of all users is, and runs what it is given in the Python that the
kernel's file names. Names are those of the wheel jupyter_client 8.10.0; a reply has the shape that Jupyter's documentation
gives it (Messaging in Jupyter, execute_reply with user_expressions). The words of an error are assumed.
"""
import json as _json
import os as _os
import subprocess as _subprocess

_KERNELS = "/usr/local/share/jupyter/kernels"


class NoSuchKernel(KeyError):
    pass


class _Client:
    def __init__(self, spec):
        self._spec = spec

    def execute(self, code, user_expressions=None, reply=False, timeout=None):
        wanted = user_expressions or {}
        program = code + "\nimport json\nprint(json.dumps({%s}))" % ", ".join(
            "%r: repr(%s)" % (name, expression) for name, expression in wanted.items()
        )
        environment = {**_os.environ, **self._spec.get("env", {})}
        argv = [self._spec["argv"][0], "-c", program]
        done = _subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            return {"content": {"status": "error", "ename": "Error", "evalue": done.stderr.strip()[-500:]}}
        said = _json.loads(done.stdout.splitlines()[-1])
        values = {name: {"status": "ok", "data": {"text/plain": text}} for name, text in said.items()}
        return {"content": {"status": "ok", "user_expressions": values}}

    def stop_channels(self):
        pass


class _Manager:
    def shutdown_kernel(self, now=False):
        pass


def start_new_kernel(startup_timeout=60, kernel_name="python3"):
    path = _os.path.join(_KERNELS, kernel_name, "kernel.json")
    if not _os.path.exists(path):
        raise NoSuchKernel(kernel_name)
    with open(path) as file:
        spec = _json.load(file)
    return _Manager(), _Client(spec)
