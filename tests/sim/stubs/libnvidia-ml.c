/* The stand-in NVML library: only its presence and its version matter, nvidia-smi's stand-in reads them from its file name. */
#include <stdio.h>
int nvmlInit_v2(void) { return fopen("/run/gpuwright-sim/cuda", "r") != NULL ? 0 : 9; }
int nvmlShutdown(void) { return 0; }
