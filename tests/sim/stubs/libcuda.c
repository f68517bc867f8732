/* The stand-in libcuda: the driver API's functions that a proof of a card calls, over a state file instead of a card.
 *
 * The simulated kernel writes /run/gpuwright-sim/cuda: "result N", "kernel VERSION", one line "gpu MIB MAJOR MINOR UUID BUS NAME"
 * a card. Memory of a "card" is memory of the process. Compiled once per driver version: a library and a kernel module of two
 * versions refuse each other, as the real ones do.
 *
 * A program of PTX is known by its names, and what it says is done here in C: the load of a card (module_utils/measure/card_load_ptx.py).
 * Lines of the state file make it a broken card:
 *   free MIB          memory that is free (192: what a test fills is the memory of its process)
 *   piece MIB         the largest piece of it (1024)
 *   integrated        it has no memory of its own
 *   flip WORD BIT     this bit of this word of all that is checked is 1 whatever is written
 *   wrong PROGRAM     one result of the program has a wrong bit
 *   module N          compiling fails with this CUresult, and the compiler says why
 *   after N           how many launches are well before the faulty one (2)
 *   launch N          the faulty launch fails with this CUresult
 *   hang, crash       the faulty launch never comes back, or ends the process
 * What the driver does and no document says is marked `assumed`.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef VERSION
#error "compile with -DVERSION=\"580.178.04\" -DCUDA=13000"
#endif

#ifndef STATE
#define STATE "/run/gpuwright-sim/cuda"
#endif
/* Its age says whether the cards work: nvidia-smi's stand-in shows them under load then. */
#define WORKING "/run/gpuwright-sim/working"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, NOT_FOUND = 500, SYSTEM_DRIVER_MISMATCH = 803, COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, UNKNOWN = 999 };

#ifndef FORWARD   /* 1: the library of a cuda-compat package, which runs on an older kernel module, and on data-centre cards only */
#define FORWARD 0
#endif
enum { MAX_GPUS = 16 };

typedef struct { uint64_t mib; int major, minor; char uuid[64], bus[32], name[128]; } gpu_t;

static gpu_t gpus[MAX_GPUS];
static int count = -1;

/* What the state file says of a card's faults; see above. */
static struct {
    uint64_t spare, piece, flip_word;
    int flip_bit, module, after, launch, hang, crash, integrated;
    char wrong[64];
} faults;

static void read_fault(const char *line) {
    unsigned long first, second;
    if (sscanf(line, "free %lu", &first) == 1) faults.spare = (uint64_t)first << 20;
    if (sscanf(line, "piece %lu", &first) == 1) faults.piece = (uint64_t)first << 20;
    if (sscanf(line, "flip %lu %lu", &first, &second) == 2) { faults.flip_word = first; faults.flip_bit = (int)second; }
    sscanf(line, "wrong %63s", faults.wrong);
    sscanf(line, "module %d", &faults.module);
    sscanf(line, "after %d", &faults.after);
    sscanf(line, "launch %d", &faults.launch);
    if (strncmp(line, "integrated", 10) == 0) faults.integrated = 1;
    if (strncmp(line, "hang", 4) == 0) faults.hang = 1;
    if (strncmp(line, "crash", 5) == 0) faults.crash = 1;
}

/* CUDA_VISIBLE_DEVICES names cards or MIG instances by the beginning of their UUID (CUDA Programming Guide, "CUDA Environment Variables";
 * docs.nvidia.com/deploy, topic 5.2.1). Here it is one of them: what the load gives its children. */
static void leave_visible(void) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    int kept = 0;
    if (wanted == NULL || (strncmp(wanted, "GPU-", 4) != 0 && strncmp(wanted, "MIG-", 4) != 0)) return;
    for (int index = 0; index < count; index++)
        if (strncmp(gpus[index].uuid, wanted, strlen(wanted)) == 0) gpus[kept++] = gpus[index];
    count = kept;
}

static int forward(const char *kernel, int result) {
    if (atoi(kernel) >= atoi(VERSION)) return SYSTEM_DRIVER_MISMATCH;
    for (int index = 0; index < count; index++)
        if (strstr(gpus[index].name, "GeForce") != NULL) return COMPAT_NOT_SUPPORTED_ON_DEVICE;
    return result;
}

int cuInit(unsigned flags) {
    char line[512], kernel[64] = "-";
    int result = NO_DEVICE;
    FILE *state = fopen(STATE, "r");
    if (flags != 0) return INVALID_VALUE;
    if (state == NULL) return NO_DEVICE;
    count = 0;
    memset(&faults, 0, sizeof faults);
    faults.spare = (uint64_t)192 << 20;
    faults.piece = (uint64_t)1 << 30;
    faults.flip_bit = -1;
    faults.after = 2;
    while (fgets(line, sizeof line, state) != NULL) {
        gpu_t *gpu = &gpus[count];
        read_fault(line);
        if (sscanf(line, "result %d", &result) == 1) continue;
        if (sscanf(line, "kernel %63s", kernel) == 1) continue;
        if (count < MAX_GPUS && sscanf(line, "gpu %lu %d %d %63s %31s %127[^\n]", &gpu->mib, &gpu->major, &gpu->minor,
                                       gpu->uuid, gpu->bus, gpu->name) == 6) count++;
    }
    fclose(state);
    if (strcmp(kernel, "-") == 0) result = NO_DEVICE;
    else if (strcmp(kernel, VERSION) != 0) result = FORWARD ? forward(kernel, result) : SYSTEM_DRIVER_MISMATCH;
    if (result == SUCCESS) leave_visible();
    if (result == SUCCESS && count == 0 && getenv("CUDA_VISIBLE_DEVICES") != NULL) result = NO_DEVICE;
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
        case 18: *value = faults.integrated; break;      /* shares the host's memory */
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

/* Before each piece of memory stands how large it is. */
enum { HEADER = 256 };

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    if (count < 0) return NOT_INITIALIZED;
    unsigned char *memory = bytes > faults.piece || bytes > faults.spare ? NULL : malloc(bytes + HEADER);
    if (memory == NULL) return OUT_OF_MEMORY;
    *(size_t *)memory = bytes;
    faults.spare -= bytes;
    *pointer = (uint64_t)(uintptr_t)(memory + HEADER);
    return SUCCESS;
}
int cuMemFree_v2(uint64_t pointer) {
    unsigned char *memory = (unsigned char *)(uintptr_t)pointer - HEADER;
    faults.spare += *(size_t *)memory;
    free(memory);
    return SUCCESS;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return SUCCESS; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (const void *)(uintptr_t)from, bytes); return SUCCESS; }
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) { memset((void *)(uintptr_t)to, value, bytes); return SUCCESS; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    if (count <= 0) return NOT_INITIALIZED;
    *total = (size_t)gpus[0].mib << 20;
    *unused = faults.spare;
    return SUCCESS;
}

/* Programs. A module is its PTX, a function its name in there. */
typedef struct { char name[64]; } function_t;
enum { RECORDS = 16, CHAINS = 8, SIDE = 16, ADDRESS = 0, WALK = 1, VERIFY = 1, WRITE = 2 };

int cuModuleLoadDataEx(void **module, const char *text, unsigned options, const int *keys, void **values) {
    static const char said[] = "ptxas fatal   : the stand-in refuses this text";
    const char *target = strstr(text, ".target sm_");
    int wanted = target == NULL ? 0 : atoi(target + strlen(".target sm_"));
    int code = faults.module;
    if (count <= 0) return NOT_INITIALIZED;
    if (strncmp(text + strspn(text, " \t\r\n"), ".version", 8) != 0 || target == NULL) code = INVALID_PTX;
    /* A text for a newer generation than the card's: assumed, the real one may say INVALID_PTX. */
    else if (wanted > gpus[0].major * 10 + gpus[0].minor) code = NO_BINARY_FOR_GPU;
    for (unsigned option = 0; code != SUCCESS && option < options; option++)
        if (keys[option] == 5) snprintf(values[option], sizeof said, "%s", said);   /* CU_JIT_ERROR_LOG_BUFFER */
    if (code == SUCCESS) *module = strdup(text);
    return code;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    char entry[128];
    function_t *found = calloc(1, sizeof *found);
    snprintf(entry, sizeof entry, ".visible .entry %s (", name);
    if (found == NULL || strstr(module, entry) == NULL) return NOT_FOUND;
    snprintf(found->name, sizeof found->name, "%s", name);
    *function = found;
    return SUCCESS;
}

static void note(uint64_t *report, uint64_t place, uint64_t expected, uint64_t found) {
    uint64_t at = report[0]++;
    if (at >= RECORDS) return;
    report[1 + 3 * at] = place;
    report[2 + 3 * at] = expected;
    report[3 + 3 * at] = found;
}

static uint64_t pattern(uint64_t place, uint32_t kind, uint64_t seed) {
    uint64_t mixed = place * 0x9E3779B97F4A7C15ULL + seed;
    if (kind == ADDRESS) return place + seed;
    if (kind == WALK) return 1ULL << ((place + seed) & 63);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return mixed ^ (mixed >> 31);
}

#define VALUE(type, number) (*(type *)values[number])
#define POINTER(type, number) ((type *)(uintptr_t)VALUE(uint64_t, number))

static void check_memory(void **values) {
    uint64_t *memory = POINTER(uint64_t, 0), words = VALUE(uint64_t, 1), first = VALUE(uint64_t, 2);
    uint32_t steps = VALUE(uint32_t, 7);
    for (uint64_t index = 0; index < words; index++) {
        uint64_t word = pattern(first + index, VALUE(uint32_t, 3), VALUE(uint64_t, 4)), expected = word ^ VALUE(uint64_t, 5);
        if ((steps & VERIFY) && memory[index] != expected) note(POINTER(uint64_t, 8), first + index, expected, memory[index]);
        if (steps & WRITE) memory[index] = word ^ VALUE(uint64_t, 6);
        if (faults.flip_bit >= 0 && first + index == faults.flip_word) memory[index] |= 1ULL << faults.flip_bit;
    }
}

/* x * x + c, rounded once: the product of two numbers of 24 bits and the sum with a third fit into 113. */
static float multiplied(float x, float c) { return (float)((__float128)x * x + c); }

static uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, sizeof bits); return bits; }

static void compute_fma(void **values, int wrong) {
    const float *begins = POINTER(float, 0), *results = POINTER(float, 1);
    for (uint32_t round = 0; round < VALUE(uint32_t, 4); round++)
        for (int chain = 0; chain < CHAINS; chain++) {
            float x = begins[chain];
            for (uint32_t step = 0; step < VALUE(uint32_t, 3); step++) x = multiplied(x, VALUE(float, 2));
            uint32_t found = bits_of(x) ^ (wrong && round == 0 && chain == 3 ? 1u << 9 : 0u);
            if (found != bits_of(results[chain])) note(POINTER(uint64_t, 5), 0, bits_of(results[chain]), found);
        }
}

static float of_half(uint16_t half) {
    int exponent = (half >> 10) & 31;
    float value = exponent == 0 ? 0 : (float)(1024 + (half & 1023));
    for (int more = exponent; more < 25; more++) value /= 2;
    for (int more = 25; more < exponent; more++) value *= 2;
    return half & 0x8000 ? -value : value;
}

static void compute_mma(void **values, int wrong) {
    const uint16_t *left = POINTER(uint16_t, 0), *right = left + 2 * SIDE * SIDE;
    const float *product = (const float *)(right + SIDE * SIDE);
    for (uint32_t round = 0; round < VALUE(uint32_t, 1); round++)
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++) {
                float sum = 0;
                for (int k = 0; k < SIDE; k++) sum += of_half(left[row * SIDE + k]) * of_half(right[k * SIDE + column]);
                if (wrong && round == 0 && row == 7 && column == 7) sum += 1;
                if (sum != product[row * SIDE + column])
                    note(POINTER(uint64_t, 2), 0, bits_of(product[row * SIDE + column]), bits_of(sum));
            }
}

static void show_work(void) {
    int file = open(WORKING, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return;
    futimens(file, NULL);
    close(file);
}

int cuLaunchKernel(const function_t *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared, void *stream, void **values, void **extra) {
    static int launches;
    int wrong = strcmp(function->name, faults.wrong) == 0;
    (void)shared; (void)stream; (void)extra;
    if (x * y * z == 0 || block_x * block_y * block_z == 0 || block_x * block_y * block_z > 1024) return INVALID_VALUE;
    show_work();
    if (launches++ == faults.after) {
        if (faults.crash) abort();
        while (faults.hang) pause();
        if (faults.launch) return faults.launch;
    }
    if (strcmp(function->name, "check_memory") == 0) check_memory(values);
    else if (strcmp(function->name, "compute_fma") == 0) compute_fma(values, wrong);
    else if (strcmp(function->name, "compute_mma") == 0) compute_mma(values, wrong);
    else return INVALID_VALUE;
    return SUCCESS;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)flags; return known(device); }

static const char *name_of(int code) {
    switch (code) {
        case SUCCESS: return "CUDA_SUCCESS";
        case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
        case NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
        case NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
        case INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
        case NO_BINARY_FOR_GPU: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
        case INVALID_PTX: return "CUDA_ERROR_INVALID_PTX";
        case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
        case SYSTEM_DRIVER_MISMATCH: return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
        case COMPAT_NOT_SUPPORTED_ON_DEVICE: return "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
        case UNKNOWN: return "CUDA_ERROR_UNKNOWN";
        default: return NULL;
    }
}
int cuGetErrorName(int code, const char **text) { *text = name_of(code); return *text != NULL ? SUCCESS : INVALID_VALUE; }
int cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }
