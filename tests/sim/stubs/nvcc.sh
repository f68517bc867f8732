#!/bin/sh
# The stand-in compiler: it says its version, and compiles nothing.
case "$1" in
--version | -V)
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Copyright (c) 2005-2026 NVIDIA Corporation"
    echo "Built on Fri_Nov_20_12:00:00_UTC_2026"
    echo "Cuda compilation tools, release @RELEASE@, V@VERSION@"
    echo "Build cuda_@RELEASE@.r@RELEASE@/compiler.0_0"
    ;;
*)
    echo "nvcc: the simulated node has no compiler" >&2
    exit 1
    ;;
esac
