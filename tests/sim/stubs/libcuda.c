/* The stand-in libcuda: the driver API's functions that a proof of a card calls, over a state file instead of a card.
 *
 * The simulated kernel writes /run/gpuwright-sim/cuda: "result N", "kernel VERSION", one line "gpu MIB MAJOR MINOR UUID BUS NAME"
 * a card. Memory of a "card" is memory of the process. Compiled once per driver version: a library and a kernel module of two
 * versions refuse each other, as the real ones do.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#error "compile with -DVERSION=\"580.178.04\" -DCUDA=13000"
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       SYSTEM_DRIVER_MISMATCH = 803, COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, UNKNOWN = 999 };

#ifndef FORWARD   /* 1: the library of a cuda-compat package, which runs on an older kernel module, and on data-centre cards only */
#define FORWARD 0
#endif
enum { MAX_GPUS = 16 };

typedef struct { uint64_t mib; int major, minor; char uuid[64], bus[32], name[128]; } gpu_t;

static gpu_t gpus[MAX_GPUS];
static int count = -1;

static int forward(const char *kernel, int result) {
    if (atoi(kernel) >= atoi(VERSION)) return SYSTEM_DRIVER_MISMATCH;
    for (int index = 0; index < count; index++)
        if (strstr(gpus[index].name, "GeForce") != NULL) return COMPAT_NOT_SUPPORTED_ON_DEVICE;
    return result;
}

int cuInit(unsigned flags) {
    char line[512], kernel[64] = "-";
    int result = NO_DEVICE;
    FILE *state = fopen("/run/gpuwright-sim/cuda", "r");
    if (flags != 0) return INVALID_VALUE;
    if (state == NULL) return NO_DEVICE;
    count = 0;
    while (fgets(line, sizeof line, state) != NULL) {
        gpu_t *gpu = &gpus[count];
        if (sscanf(line, "result %d", &result) == 1) continue;
        if (sscanf(line, "kernel %63s", kernel) == 1) continue;
        if (count < MAX_GPUS && sscanf(line, "gpu %lu %d %d %63s %31s %127[^\n]", &gpu->mib, &gpu->major, &gpu->minor,
                                       gpu->uuid, gpu->bus, gpu->name) == 6) count++;
    }
    fclose(state);
    if (strcmp(kernel, "-") == 0) result = NO_DEVICE;
    else if (strcmp(kernel, VERSION) != 0) result = FORWARD ? forward(kernel, result) : SYSTEM_DRIVER_MISMATCH;
    if (result != SUCCESS) count = -1;
    return result;
}

static int known(int device) {
    if (count < 0) return NOT_INITIALIZED;
    return device >= 0 && device < count ? SUCCESS : INVALID_DEVICE;
}

int cuDriverGetVersion(int *version) { *version = CUDA; return SUCCESS; }
int cuDeviceGetCount(int *answer) { if (count < 0) return NOT_INITIALIZED; *answer = count; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { int state = known(ordinal); if (state == SUCCESS) *device = ordinal; return state; }

int cuDeviceGetName(char *name, int length, int device) {
    int state = known(device);
    if (state == SUCCESS) snprintf(name, length, "%s", gpus[device].name);
    return state;
}

int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    int state = known(device);
    if (state == SUCCESS) snprintf(bus, length, "%s", gpus[device].bus);
    return state;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    int state = known(device), filled = 0;
    if (state != SUCCESS) return state;
    memset(uuid, 0, 16);
    for (const char *at = gpus[device].uuid + 4; *at != 0 && filled < 16; at++) {
        unsigned value;
        if (*at == '-') continue;
        if (sscanf(at, "%2x", &value) != 1) break;
        uuid[filled++] = (unsigned char)value;
        at++;
    }
    return SUCCESS;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    int state = known(device);
    if (state == SUCCESS) *bytes = (size_t)gpus[device].mib << 20;
    return state;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int state = known(device);
    if (state != SUCCESS) return state;
    switch (attribute) {
        case 16: *value = 132; break;                    /* multiprocessors */
        case 75: *value = gpus[device].major; break;     /* compute capability */
        case 76: *value = gpus[device].minor; break;
        default: *value = 0;
    }
    return SUCCESS;
}
int cuDeviceComputeCapability(int *major, int *minor, int device) {
    int state = known(device);
    if (state == SUCCESS) { *major = gpus[device].major; *minor = gpus[device].minor; }
    return state;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; int state = known(device); if (state == SUCCESS) *context = &gpus[device]; return state; }
int cuCtxDestroy_v2(void *context) { return context != NULL ? SUCCESS : INVALID_VALUE; }
int cuCtxSetCurrent(void *context) { (void)context; return count < 0 ? NOT_INITIALIZED : SUCCESS; }
int cuCtxSynchronize(void) { return count < 0 ? NOT_INITIALIZED : SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return cuCtxCreate_v2(context, 0, device); }
int cuDevicePrimaryCtxRelease_v2(int device) { return known(device); }

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    if (count < 0) return NOT_INITIALIZED;
    void *memory = bytes > ((size_t)1 << 30) ? NULL : malloc(bytes);
    if (memory == NULL) return OUT_OF_MEMORY;
    *pointer = (uint64_t)(uintptr_t)memory;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t pointer) { free((void *)(uintptr_t)pointer); return SUCCESS; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return SUCCESS; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (const void *)(uintptr_t)from, bytes); return SUCCESS; }
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) { memset((void *)(uintptr_t)to, value, bytes); return SUCCESS; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    if (count <= 0) return NOT_INITIALIZED;
    *total = (size_t)gpus[0].mib << 20;
    *unused = *total - ((size_t)512 << 20);
    return SUCCESS;
}

static const char *name_of(int code) {
    switch (code) {
        case SUCCESS: return "CUDA_SUCCESS";
        case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
        case NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
        case NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
        case INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
        case SYSTEM_DRIVER_MISMATCH: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
        case COMPAT_NOT_SUPPORTED_ON_DEVICE: return "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
        case UNKNOWN: return "CUDA_ERROR_UNKNOWN";
        default: return NULL;
    }
}
int cuGetErrorName(int code, const char **text) { *text = name_of(code); return *text != NULL ? SUCCESS : INVALID_VALUE; }
int cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }
