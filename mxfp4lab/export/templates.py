"""The parts of a submission file that are the same in each: workspaces, other GPUs, the choice, `custom_kernel`."""

WORKSPACE = '''\
WORKSPACES = {}


def workspace(name, shape, dtype, device):
    """Memory between the launches of one call, kept per shape; a call writes all that it reads of it."""
    key = (name, shape, device)
    if key not in WORKSPACES:
        WORKSPACES[key] = torch.empty(shape, dtype=dtype, device=device)
    return WORKSPACES[key]'''

WORKSPACE_FILLED = '''\
WORKSPACES = {}


def workspace(name, shape, dtype, device, fill=None):
    """Memory that kernels share, kept per shape: they write what they read of it, or count on from `fill`."""
    key = (name, shape, device)
    if key not in WORKSPACES:
        if fill is None:
            WORKSPACES[key] = torch.empty(shape, dtype=dtype, device=device)
        else:
            WORKSPACES[key] = torch.full(shape, fill, dtype=dtype, device=device)
    return WORKSPACES[key]'''

AITER_CONFIG = '''\
@functools.cache
def aiter_config(M, N, K):
    """Name and log2 of the split of aiter's tuned kernel; without an entry aiter decides by itself."""
    config = get_GEMM_config(M, N, K)
    if config is None or "_ZN" not in config["kernelName"]:  # other names are not prebuilt kernels
        return "", 0
    return config["kernelName"], config["splitK"] or 0'''

AMD_OPTIONS_LINE = 'AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")'
ADAPT = '''\
@functools.cache
def is_gfx950():
    return getattr(torch.cuda.get_device_properties(0), "gcnArchName", "").startswith("gfx950")


def on_this_gpu(constants):
    """Constants of a launch as this GPU takes them: @LACKS@."""
    if is_gfx950():
        return constants
@ADAPTED@'''

DROP_OPTIONS = "    return {name: value for name, value in constants.items() if name not in AMD_OPTIONS}"
DROP_BOTH = """\
    adapted = {name: value for name, value in constants.items() if name not in AMD_OPTIONS}
    if "CONVERT" in adapted:
        adapted["CONVERT"] = "sw_bits"  # the same bits without the instruction
    return adapted"""
DROP_CONVERT = """\
    return constants | {"CONVERT": "sw_bits"}  # the same bits without the instruction"""

FALLBACK = """\
# Any other shape with N a multiple of 32 and K of 64: right, but not tuned."""

CUSTOM_KERNEL = '''\
def custom_kernel(data: input_t) -> output_t:
    """C = quantize(A) @ dequantize(B).T in bf16; data is (A, B, B_q, B_shuffle, B_scale_sh)."""
    M, K = data[0].shape
    N = data[1].shape[0]
    run, *constants = CONFIGS.get((M, N, K), DEFAULT)
    return run(data, M, N, K, *constants)'''

ONE_WAY_KERNEL = '''\
def custom_kernel(data: input_t) -> output_t:
    """C = quantize(A) @ dequantize(B).T in bf16; data is (A, B, B_q, B_shuffle, B_scale_sh)."""
    M, K = data[0].shape
    N = data[1].shape[0]
    return @RUN@(data, M, N, K, @STAR@CONFIGS.get((M, N, K), DEFAULT))'''

CHOOSE = '''\
CHOSEN = {}
REPEATS = 7
SECONDS_PER_SHAPE = 20  # compilation included: six shapes stay far from the task's time-outs
FLUSH_BYTES = 512 << 20  # twice the 256 MiB Infinity Cache


def choose(shape, data):
    """Time the candidates of a shape with cold caches; the fastest of those that agree with the first.

    This runs once, inside the first call of the shape, which is checked and not timed.
    """
    rows = CANDIDATES[shape]
    best, best_ms, expected = rows[0], float("inf"), None
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=data[0].device)
    started = time.perf_counter()
    for run, *constants in rows:
        if time.perf_counter() - started > SECONDS_PER_SHAPE:
            break
        try:
            c = run(data, *shape, *constants)
            torch.cuda.synchronize()
            if expected is None:
                expected = c
            elif not torch.equal(c, expected):
                continue
            times = []
            for _ in range(REPEATS):
                flush.zero_()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                run(data, *shape, *constants)
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            median = sorted(times)[REPEATS // 2]
        except Exception as error:  # a config that this toolchain cannot build drops out
            print(f"{shape}: {constants[0]} dropped out: {type(error).__name__}")
            continue
        if median < best_ms:
            best, best_ms = (run, *constants), median
    return best


def custom_kernel(data: input_t) -> output_t:
    """C = quantize(A) @ dequantize(B).T in bf16; data is (A, B, B_q, B_shuffle, B_scale_sh)."""
    M, K = data[0].shape
    N = data[1].shape[0]
    shape = (M, N, K)
    if shape not in CHOSEN:
        CHOSEN[shape] = choose(shape, data) if shape in CANDIDATES else DEFAULT
    run, *constants = CHOSEN[shape]
    return run(data, M, N, K, *constants)'''
