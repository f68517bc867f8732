# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs that load cards through PyTorch. The interpreter of an environment runs them; they use torch and the standard library alone.

Each is given one argument, a JSON object of settings, and tells what it measured as the programs of frameworks do (measure/framework.py):
a line of JSON behind a mark. A part that raises is told with its error, and the next one is tried. PyTorch 1.13 and newer is meant: what
one of them lacks (``_scaled_mm``, ``all_gather_into_tensor``) is asked for first.

Times are those of CUDA events, each around one piece of work in a queue that is kept full, after warming up; the figure is the median. On
the processor the same is measured by the clock.
"""

from __future__ import annotations

from typing import Dict

from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework import HEAD

# `card`: whether cards are loaded, or the processor. `devices`: their UUIDs; nothing else is seen. `seconds`: for each of the `parts`.
# `ranks`: of all hosts together; `here`: how many of them this host has, from `first_rank` on.
_BEGIN = """
import time
settings = json.loads(sys.argv[1])
local = int(os.environ.get("GPUWRIGHT_RANK", "0"))
rank = settings.get("first_rank", 0) + local
ranks = settings.get("ranks", 1)
here = settings.get("here", ranks)
on_card = settings["card"]
os.environ["CUDA_VISIBLE_DEVICES"] = settings["devices"]
"""

# Starts itself once for each rank, by the words that the kernel keeps of it. A rank that ends badly ends the others, which would wait for
# it. Each asks the kernel (prctl 1, PR_SET_PDEATHSIG) to be killed with this process.
_LAUNCH = """
def launch():
    import ctypes, subprocess
    libc = ctypes.CDLL(None)
    with open("/proc/self/cmdline", "rb") as stream:
        words = stream.read().split(b"\\0")[:-1]
    running = {}
    for number in range(here):
        environment = dict(os.environ, GPUWRIGHT_RANK=str(number))
        running[number] = subprocess.Popen(words, env=environment, preexec_fn=lambda: libc.prctl(1, 9))
    while running:
        ended = {number: child.poll() for number, child in running.items()}
        wrong = sorted((status, number) for number, status in ended.items() if status)
        if wrong:
            # The one that was killed, and not one that lost its partner by it and ended with an error of its own.
            say("rank", rank=rank + wrong[0][1], status=wrong[0][0])
            for other in running.values():
                other.kill()
            sys.exit(1)
        running = {number: child for number, child in running.items() if ended[number] is None}
        time.sleep(0.02)
if "GPUWRIGHT_RANK" not in os.environ:
    launch()
    sys.exit(0)
"""

_IMPORT = """
try:
    import torch
except BaseException as error:
    say("import", error=told(error))
    sys.exit(0)
say("import", version=torch.__version__, cuda=torch.version.cuda)
if on_card:
    try:
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
        capability = torch.cuda.get_device_capability(device)
        say("device", name=torch.cuda.get_device_name(device), count=torch.cuda.device_count())
    except BaseException as error:
        say("device", error=told(error))
        sys.exit(0)
else:
    device, capability = torch.device("cpu"), (0, 0)
    say("device", name="processor", count=0)
MIB = 1 << 20
def free_host():
    with open("/proc/meminfo") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))
def free_memory():
    if not on_card:
        return free_host()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]
def settle():
    if on_card:
        torch.cuda.synchronize(device)
def times(work, seconds, least=5, most=1000):
    # Seconds of each repeat: at least `least`, then until the time is over or there are `most`. A card needs a while to raise its clocks.
    warm = time.monotonic() + min(1.0, seconds / 4)
    rounds = 0
    while rounds < 3 or time.monotonic() < warm:
        begun = time.monotonic()
        work()
        settle()
        took = time.monotonic() - begun
        rounds += 1
    group = 10 if took < 0.05 else 1
    found = []
    end = time.monotonic() + seconds * 3 / 4
    while len(found) < most and (len(found) < least or time.monotonic() < end):
        if on_card:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(group + 1)]
            marks[0].record()
            for mark in marks[1:]:
                work()
                mark.record()
            settle()
            found += [first.elapsed_time(second) / 1000 for first, second in zip(marks, marks[1:])]
        else:
            begun = time.perf_counter()
            work()
            found.append(time.perf_counter() - begun)
    return found
def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
def take(parts):
    for name, work in parts:
        if name in settings["parts"]:
            say("begin", part=name)
            try:
                work()
            except BaseException as error:
                say("broken", part=name, error=told(error))
                if ranks > 1:
                    # The other ranks wait for this one: ended so that they are.
                    os._exit(1)
                continue
            say("done", part=name)
    say("end")
"""

# Products of matrices: 2 n^3 operations. A and B are drawn from a normal distribution, since zeros need less power and are computed faster.
# The product is held against one with a vector, C v = A (B v) in double precision (Freivalds), which costs n^2 and sees every element.
_TFLOPS = """
def set_tf32(wanted):
    # One word since PyTorch 2.9, a flag before.
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = "tf32" if wanted else "ieee"
    else:
        matmul.allow_tf32 = wanted
def precisions():
    if not on_card:
        return ["fp32", "fp64", "bf16"]
    found = ["fp32", "fp64"]
    if capability >= (7, 0) or capability == (6, 0):
        found.append("fp16")
    if capability >= (8, 0):
        found += ["tf32", "bf16"]
    if capability >= (8, 9) and hasattr(torch, "_scaled_mm") and hasattr(torch, "float8_e4m3fn"):
        found.append("fp8")
    return found
def product_of(precision, size):
    kind = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    first = torch.randn(size, size, device=device, dtype=kind)
    second = torch.randn(size, size, device=device, dtype=kind)
    if precision == "fp8":
        # The second factor lies by columns. The accumulation is the quick one, as forward passes of training take it.
        one = torch.ones((), device=device)
        first, second = first.to(torch.float8_e4m3fn), second.to(torch.float8_e4m3fn).t()
        def multiply():
            found = torch._scaled_mm(first, second, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
            return found[0] if isinstance(found, tuple) else found
        return first, second, multiply
    out = torch.empty(size, size, device=device, dtype=kind)
    return first, second, lambda: torch.mm(first, second, out=out)
def by_vector(matrix, vector):
    pieces = [matrix[row : row + 1024].float().double() if matrix.dtype != torch.float64 else matrix[row : row + 1024]
              for row in range(0, len(matrix), 1024)]
    return torch.cat([piece @ vector for piece in pieces])
def deviation(first, second, found):
    vector = torch.randint(0, 2, (len(found), 1), device=device).double() * 2 - 1
    right = by_vector(first, by_vector(second, vector))
    return ((by_vector(found, vector) - right).abs().max() / right.pow(2).mean().sqrt()).item()
def size_for(precision, seconds):
    size, small = (8192, 2048) if on_card else (2048, 512)
    free = free_memory()
    while size > small and 3 * 8 * size * size > free / 2:
        size //= 2
    multiply = product_of(precision, small)[2]
    for _ in range(2):
        multiply()
        settle()
    begun = time.monotonic()
    multiply()
    settle()
    each = time.monotonic() - begun
    # A small one has more overhead in it, so that this is an upper bound of what a large one takes: twelve of them at least are made.
    while size > small and 12 * each * (size / small) ** 3 > seconds:
        size //= 2
    return size
def tflops():
    wanted = precisions()
    for precision in wanted:
        seconds = settings["seconds"] / len(wanted)
        try:
            set_tf32(precision == "tf32")
            size = size_for(precision, seconds)
            first, second, multiply = product_of(precision, size)
            found = times(multiply, seconds)
            say("tflops", precision=precision, size=size, seconds=median(found), repeats=len(found),
                deviation=deviation(first, second, multiply()))
        except BaseException as error:
            say("tflops", precision=precision, error=told(error))
        first = second = multiply = None
    set_tf32(False)
"""

# What is read and what is written counts, as STREAM counts it. Small whole numbers, so that the sums are exact.
_BANDWIDTH = """
def bandwidth():
    size = min(free_memory() // 8, 2048 * MIB if on_card else 128 * MIB) // MIB * MIB
    count = size // 4
    values = torch.arange(count, device=device, dtype=torch.int32).remainder_(1000).float()
    ones = torch.ones(count, device=device)
    out = torch.empty(count, device=device)
    for name, work, arrays, more in (
        ("copy", lambda: out.copy_(values), 2, 0),
        ("triad", lambda: torch.add(values, ones, alpha=3.0, out=out), 3, 3),
    ):
        out.zero_()
        found = times(work, settings["seconds"] / 2)
        right = bool((out - more == values).all().item())
        say("bandwidth", kind=name, bytes=arrays * size, seconds=median(found), repeats=len(found), right=right)
"""

# `nodes`: the NUMA nodes with their processors. Pinned memory lies on the node of the thread that asks for it; what was pinned stays until
# the end, since PyTorch would give it to the next one.
_HOST_DEVICE = """
def host_device():
    kept = []
    allowed = os.sched_getaffinity(0)
    size = min(256 * MIB, free_host() // (16 * max(len(settings["nodes"]), 1)), free_memory() // 8) // MIB * MIB
    for node in settings["nodes"]:
        cpus = allowed & set(node["cpus"])
        if not cpus:
            say("host_device", node=node["node"], local=node["local"], error="this process may not run on the processors of the node")
            continue
        os.sched_setaffinity(0, cpus)
        try:
            one_node(node, size, kept)
        except BaseException as error:
            say("host_device", node=node["node"], local=node["local"], error=told(error))
    os.sched_setaffinity(0, allowed)
def one_node(node, size, kept):
    seconds = settings["seconds"] / len(settings["nodes"]) / 3
    source, target = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    kept += [source, target]
    source.copy_((torch.arange(size, dtype=torch.int32) % 251).to(torch.uint8))
    target.zero_()
    up, down = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    there, back = torch.cuda.Stream(device), torch.cuda.Stream(device)
    def both():
        here = torch.cuda.current_stream(device)
        there.wait_stream(here)
        back.wait_stream(here)
        with torch.cuda.stream(there):
            up.copy_(source, non_blocking=True)
        with torch.cuda.stream(back):
            target.copy_(down, non_blocking=True)
        here.wait_stream(there)
        here.wait_stream(back)
    facts = dict(node=node["node"], local=node["local"], bytes=size)
    facts["to_device"] = median(times(lambda: up.copy_(source, non_blocking=True), seconds))
    down.copy_(up)
    facts["from_device"] = median(times(lambda: target.copy_(down, non_blocking=True), seconds))
    settle()
    right = bool(torch.equal(source, target))
    facts["both"] = median(times(both, seconds))
    settle()
    say("host_device", right=right and bool(torch.equal(source, target)), **facts)
"""

# Every ordered pair of the cards that the process sees. Where cards do not reach each other's memory the copy goes through the host's.
_PEER = """
def peer():
    count = torch.cuda.device_count()
    pairs = [(first, second) for first in range(count) for second in range(count) if first != second]
    size = min(512 * MIB, free_memory() // 8) // MIB * MIB
    for first, second in pairs:
        try:
            torch.cuda.set_device(first)
            globals()["device"] = torch.device("cuda", first)
            source = (torch.arange(size, dtype=torch.int32, device=device) % 251).to(torch.uint8)
            target = torch.zeros(size, dtype=torch.uint8, device=torch.device("cuda", second))
            found = times(lambda: target.copy_(source, non_blocking=True), max(settings["seconds"] / len(pairs), 0.2))
            torch.cuda.synchronize(second)
            right = bool(torch.equal(source.cpu(), target.cpu()))
            say("peer", first=first, second=second, bytes=size, seconds=median(found), repeats=len(found), right=right,
                direct=bool(torch.cuda.can_device_access_peer(first, second)))
        except BaseException as error:
            say("peer", first=first, second=second, error=told(error))
        source = target = None
"""

# `init_method`: how the ranks find each other, as torch.distributed writes it. On one host a file in a directory of the caller's own: no
# port that others could speak to. Between hosts the address and the port on which rank 0 listens (`reach`): the first rank of each other
# host tries until that answers, since it may begin later, and tells each new answer, so that it is known what keeps them apart. How often
# an operation is repeated follows from a time that all ranks agreed on, so that all do the same.
_GROUP = """
import datetime
import torch.distributed as dist
def join():
    say("begin", part="group")
    try:
        if "reach" in settings and rank and not local:
            reach(*settings["reach"])
        dist.init_process_group("nccl" if on_card else "gloo", init_method=settings["init_method"], rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(seconds=settings["patience"]))
    except BaseException as error:
        say("broken", part="group", error=told(error))
        os._exit(1)
    if not local:
        say("group", ranks=ranks, backend=dist.get_backend(), nccl=list(torch.cuda.nccl.version()) if on_card else None)
def reach(address, port):
    import errno, socket
    words = {errno.ECONNREFUSED: "refused", errno.EHOSTUNREACH: "no route", errno.ENETUNREACH: "no route", errno.ETIMEDOUT: "timed out"}
    end, last = time.monotonic() + settings["patience"], None
    while True:
        try:
            socket.create_connection((address, port), timeout=min(5, settings["patience"])).close()
            say("reach", how="connected", error="")
            return
        except OSError as error:
            how = "unknown name" if isinstance(error, socket.gaierror) else "timed out" if isinstance(error, socket.timeout) else "failed"
            how = words.get(error.errno, how)
            if how != last:
                say("reach", how=how, error=told(error))
            last = how
            if time.monotonic() >= end:
                raise
        time.sleep(0.5)
def meet():
    # NCCL connects at the first operation.
    together = agreed(1.0, dist.ReduceOp.SUM)
    if together != ranks:
        raise RuntimeError("%r of %d ranks answered" % (together, ranks))
def agreed(number, operation):
    shared = torch.tensor([number], dtype=torch.float64, device=device)
    dist.all_reduce(shared, op=operation)
    return shared.item()
"""

_COLLECTIVES = """
def collectives():
    free = agreed(float(free_memory()), dist.ReduceOp.MIN)
    most = min(free / 4, 16384 * MIB if on_card else 16 * MIB)
    sizes = [size * MIB for size in (1, 16, 256, 1024, 4096, 16384) if size * MIB <= most]
    took = 0.0
    for before, size in zip([0] + sizes, sizes):
        # An operation is done twelve times at the least. A slow network leaves the larger sizes out, by a time that all ranks agreed on.
        if before and 12 * took * size / before > settings["seconds"] / 2:
            break
        took = max([collective(kind, size // 4 // ranks * ranks, settings["seconds"] / (2 * len(sizes)))
                    for kind in ("all_reduce", "all_gather")])
def collective(kind, count, seconds):
    own = count // ranks
    pattern = torch.arange(count, device=device, dtype=torch.int32).remainder_(1024).float()
    if kind == "all_reduce":
        data = torch.zeros(count, device=device)
        work = lambda: dist.all_reduce(data)
        right = pattern * ranks + sum(range(ranks))
    else:
        data = torch.zeros(count, device=device)
        mine = torch.zeros(own, device=device)
        pieces = list(data.chunk(ranks))
        whole = getattr(dist, "all_gather_into_tensor", None)
        work = (lambda: whole(data, mine)) if on_card and whole else (lambda: dist.all_gather(pieces, mine))
        right = pattern
    for _ in range(3):
        work()
    settle()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(3):
        work()
    settle()
    each = agreed((time.perf_counter() - begun) / 3, dist.ReduceOp.MAX)
    repeats = int(min(max(seconds / 2 / max(each, 1e-6), 5), 200))
    found = fixed(work, repeats)
    if kind == "all_reduce":
        data.copy_(pattern).add_(rank)
    else:
        data.zero_()
        mine.copy_(pattern[rank * own : (rank + 1) * own])
    work()
    settle()
    wrong = agreed(float((data != right).sum().item()), dist.ReduceOp.SUM)
    took = agreed(median(found), dist.ReduceOp.MAX)
    if rank == 0:
        say("collective", kind=kind, bytes=count * 4, seconds=took, repeats=repeats, right=wrong == 0)
    return took
def fixed(work, repeats):
    found = []
    if on_card:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        settle()
        return [first.elapsed_time(second) / 1000 for first, second in zip(marks, marks[1:])]
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return found
"""

# A small language model. Its text follows a rule with a random bit in each word, so that the loss falls within a few steps; it is stored
# compressed, as words, so that reading it costs unpacking and parsing. Operations: 6 for each weight of a product and word (2 forward, 4
# back) and those of attention, counted whole (PaLM, appendix B, https://arxiv.org/abs/2204.02311).
_TRAIN = """
import random, zlib
WORDS = 256
class Pages(torch.utils.data.Dataset):
    def __init__(self, length):
        drawn = random.Random(1000 + rank)
        self.stored = []
        for _ in range(256):
            word, page = drawn.randrange(WORDS), []
            for _ in range(length + 1):
                page.append(word)
                word = (5 * word + 7 + drawn.randrange(2)) % WORDS
            self.stored.append(zlib.compress(" ".join(map(str, page)).encode()))
    def __len__(self):
        return 10**7
    def __getitem__(self, index):
        return torch.tensor([int(word) for word in zlib.decompress(self.stored[index % len(self.stored)]).split()])
class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.into, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.back = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
    def forward(self, x):
        rows, length, width = x.shape
        parts = self.into(self.norms[0](x)).split(width, dim=2)
        heads = [part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts]
        x = x + self.out(attend(*heads).transpose(1, 2).reshape(rows, length, width))
        return x + self.back(torch.nn.functional.gelu(self.wide(self.norms[1](x))))
def attend(query, key, value):
    quick = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if quick:
        return quick(query, key, value, is_causal=True)
    length = query.shape[2]
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = (query @ key.transpose(2, 3) / query.shape[3] ** 0.5).masked_fill(hidden, float("-inf"))
    return scores.softmax(dim=3) @ value
class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, width)
        self.places = torch.nn.Parameter(torch.zeros(length, width))
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, WORDS)
    def forward(self, words):
        return self.head(self.norm(self.blocks(self.words(words) + self.places)))
def operations(layers, width, length, rows):
    return 3 * rows * (layers * (24 * length * width**2 + 4 * length**2 * width) + 2 * length * width * WORDS)
def shape():
    if not on_card:
        return 2, 128, 4, 32, 8
    free = free_memory()
    for least, found in ((20000, (8, 1024, 16, 512, 32)), (6000, (8, 1024, 16, 512, 8))):
        if free >= least * MIB:
            return found
    return 4, 512, 8, 256, 8
def train():
    layers, width, heads, length, rows = shape()
    torch.manual_seed(1)
    model = Model(layers, width, heads, length).to(device)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local] if on_card else None)
    half = on_card and capability < (8, 0)
    kind = torch.float16 if half else torch.bfloat16
    mixed = not on_card or capability >= (7, 0)
    scaler = torch.cuda.amp.GradScaler(enabled=half and mixed) if on_card else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if width < 512 else 3e-4)
    # Forked, whatever the default of this Python: a program that is given as an argument has no file that a new process could read.
    loader = iter(torch.utils.data.DataLoader(Pages(length), batch_size=rows, num_workers=settings["workers"], pin_memory=on_card,
                                              drop_last=True, multiprocessing_context="fork"))
    waits, steps, losses = [], [], []
    def step():
        begun = time.perf_counter()
        batch = next(loader)
        waits.append(time.perf_counter() - begun)
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=kind, enabled=mixed):
            scores = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.float().reshape(-1, WORDS), batch[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        settle()
        steps.append(time.perf_counter() - begun)
    for _ in range(3):
        step()
    del waits[:], steps[:]
    end = time.monotonic() + settings["seconds"]
    while len(steps) < settings["steps"]:
        step()
        over = float(time.monotonic() >= end)
        if agreed(over, dist.ReduceOp.MAX) if ranks > 1 else over:
            break
    quarter = max(len(losses) // 4, 1)
    facts = dict(ranks=ranks, steps=len(steps), seconds=median(steps), waiting=sum(waits) / max(sum(steps), 1e-9),
                 operations=operations(layers, width, length, rows), rows=rows, workers=settings["workers"],
                 precision=("fp16" if half else "bf16") if mixed else "fp32", finite=all(x == x and abs(x) < 1e9 for x in losses),
                 first=sum(losses[:quarter]) / quarter, last=sum(losses[-quarter:]) / quarter)
    if ranks > 1:
        # Each rank read other pages: equal parameters mean that their gradients went round.
        flat = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
        low, high = flat.clone(), flat.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        facts["drift"] = (high - low).abs().max().item()
        facts["finite"] = agreed(float(facts["finite"]), dist.ReduceOp.MIN) == 1.0
    if rank == 0:
        say("training", **facts)
"""

_CARD = (
    HEAD
    + _BEGIN
    + _IMPORT
    + _TFLOPS
    + _BANDWIDTH
    + _HOST_DEVICE
    + _GROUP
    + _TRAIN
    + 'take([("tflops", tflops), ("bandwidth", bandwidth), ("host_device", host_device), ("train", train)])\n'
)
_PEERS = HEAD + _BEGIN + _IMPORT + _PEER + 'take([("peer", peer)])\n'
_RANKS = (
    HEAD
    + _BEGIN
    + _LAUNCH
    + _IMPORT
    + _GROUP
    + _COLLECTIVES
    + _TRAIN
    + 'join()\ntake([("meet", meet), ("collectives", collectives), ("ddp", train)])\ndist.destroy_process_group()\n'
)

#: By the places that a program loads: one card (or the processor), the pairs of cards, and all of them together, a process for each.
PROGRAMS: Dict[str, str] = {"card": _CARD, "peers": _PEERS, "ranks": _RANKS}
