"""The simulated node: a machine without a GPU that the real programs take for one that has some.

Real wherever possible (systemd, apt, dpkg, ssh, update-initramfs, modinfo, depmod, Docker); stand-ins only for hardware
and for what NVIDIA ships. Start reading at ``__main__.py``; ``README.md`` says what is real and what is not.
"""
