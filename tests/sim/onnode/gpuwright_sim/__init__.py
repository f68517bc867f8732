"""What runs on a simulated node: its hardware, its kernel's view of it, and NVIDIA's programs.

Installed under /usr/lib/gpuwright-sim. ``tree`` writes the hardware as files, ``kernel`` decides what a kernel would decide
(does a module load?), ``boot`` puts both in place at every boot, ``smi`` and ``modprobe`` are the stand-ins for programs.
"""
