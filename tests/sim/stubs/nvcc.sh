#!/bin/sh
# The stand-in compiler of CUDA @RELEASE@. Its words, exit codes and the capabilities that it refuses are those of the real one (V13.0.88 of the wheel
# nvidia-cuda-nvcc, run on a machine; compat/cuda.yaml, targets). What it makes for a card is a script that answers as the compiled program does. That it
# does without a gcc is assumed: /etc/gpuwright-sim/gcc-too-new makes it say what the real one says of a gcc that it does not take.
case "$1" in
--version | -V)
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Copyright (c) 2005-2026 NVIDIA Corporation"
    echo "Built on Fri_Nov_20_12:00:00_UTC_2026"
    echo "Cuda compilation tools, release @RELEASE@, V@VERSION@"
    echo "Build cuda_@RELEASE@.r@RELEASE@/compiler.0_0"
    exit 0
    ;;
esac

targets=" @TARGETS@ "
output="" source="" codes="" cubin=""
while [ $# -gt 0 ]; do
    case "$1" in
    -o) output=$2 && shift ;;
    -x) shift ;;
    -cubin) cubin=yes ;;
    -arch=*) codes="$codes ${1#-arch=}" ;;
    -gencode=*) codes="$codes ${1##*code=}" ;;
    -*) echo "nvcc fatal   : Unknown option '$1'" >&2 && exit 1 ;;
    *) source=$1 ;;
    esac
    shift
done
[ -n "$source" ] || { echo "nvcc fatal   : No input files specified; use option --help for more information" >&2 && exit 1; }
for code in $codes; do
    case "$targets" in
    *" $code "*) ;;
    *) echo "nvcc fatal   : Unsupported gpu architecture '$code'" >&2 && exit 1 ;;
    esac
done
if [ -e /etc/gpuwright-sim/gcc-too-new ]; then
    echo "crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc versions later than 15 are not supported!" >&2
    exit 1
fi
if [ -n "$cubin" ]; then
    echo "cubin$codes" >"$output"
    exit 0
fi
cat >"$output" <<PROGRAM
#!/bin/sh
codes="$codes "
PROGRAM
cat >>"$output" <<'PROGRAM'
mark="gpuwright-toolkit: "
failed() { printf '\n%s{"step": "count", "count": 0, "code": %d, "error": "%s"}\n' "$mark" "$1" "$2" && exit 0; }
state=/run/gpuwright-sim/cuda
[ -r $state ] || failed 35 "CUDA driver version is insufficient for CUDA runtime version"
result=$(sed -n 's/^result //p' $state)
[ "$result" = 0 ] || failed "${result:-100}" "no CUDA-capable device is detected"
printf '\n%s{"step": "count", "count": %d, "code": 0, "error": "no error"}\n' "$mark" "$(grep -c '^gpu ' $state)"
grep '^gpu ' $state | while read -r _gpu _mib major minor _uuid bus _name; do
    case "$codes" in
    *" sm_$major$minor "*) right=4096 call=cudaMemcpy code=0 error="no error" ;;
    *) right=0 call="the start of the kernel" code=209 error="no kernel image is available for execution on the device" ;;
    esac
    printf '%s{"step": "card", "bus_id": "%s", "right": %d, "call": "%s", "code": %d, "error": "%s"}\n' \
        "$mark" "$bus" $right "$call" $code "$error"
done
PROGRAM
chmod 755 "$output"
