"""A compiled kernel: machine code, what it occupies and what it contains."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mxfp4lab.display import Shown, badge, spills_in_words
from mxfp4lab.gfx950.isa import (
    Hazard,
    IsaError,
    KernelDescriptor,
    Program,
    classify,
    find_hazards,
    parse_amdgcn,
    read_code_object,
)
from mxfp4lab.gfx950.isa.elf import open_code_object
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.hardware import LDS_BYTES, MAX_WAVES_PER_SIMD, SIMDS_PER_CU, VGPR_GRANULE, VGPRS_PER_LANE, WAVE_LANES

# gfx950 (LLVM's GCNSubtarget for gfx90a and later):
ARCH_VGPR_GRANULE = 4  # accumulation registers start at a multiple of 4
LDS_GRANULE = 1280  # LLVM: 320 dwords on gfx950
WAVE_SGPRS_EXTRA = 6  # vcc, flat_scratch and xnack_mask sit behind the kernel's own SGPRs
# sm_90 (CUDA C++ programming guide, table "Technical specifications per compute capability"):
SM90_REGISTERS_PER_PARTITION = 16384
SM90_WARPS_PER_PARTITION = 16
SM90_SHARED_PER_SM = 233472  # bytes, of which a block's driver takes some:
SM90_SHARED_RESERVED = 1024


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies.

    Attributes:
        vgprs, agprs: architectural and accumulation registers per lane (sm_90: registers per thread, 0).
        sgprs: scalar registers per wave.
        spilled_vgprs, spilled_sgprs: registers the compiler moved to scratch (sm_90: 4-byte words of local memory, 0).
        scratch_bytes: private memory per lane.
        lds_bytes: LDS (shared memory) per workgroup.
        occupancy_waves_per_simd: waves that fit on one SIMD at once, from registers, LDS and workgroup size.
    """

    vgprs: int
    agprs: int
    sgprs: int
    spilled_vgprs: int
    spilled_sgprs: int
    scratch_bytes: int
    lds_bytes: int
    occupancy_waves_per_simd: int


@dataclass
class Compiled(Shown):
    """One kernel for one target.

    Attributes:
        name: the kernel's symbol.
        arch: "gfx950", "sm_90", ...
        asm: amdgcn text (PTX for sm_90); empty for a code object that came without one.
        binary: the code object (hsaco, cubin).
        signature: (name, type) of the run-time arguments in order, a tuple's entries one by one ("p[0]"); arguments
            folded at compile time are absent.
        constants: values folded into the code, by parameter, as text.
        num_warps: waves per workgroup.
        lds_bytes: LDS that a launch allocates per workgroup.
        kernel_hash: 16 hex digits over source, signature, constants, options and target: what the kernel is, whichever
            toolchain and knobs compile it.
        toolchain: versions that compiled it.
        knobs: environment knobs that were set.
        compile_s: seconds the compilation took, when it took place.
        metadata: the compiler's own description of the kernel (JSON values), which its launcher needs.
        from_cache: whether this object came from the disk cache.
    """

    name: str
    arch: str
    asm: str = field(repr=False)
    binary: bytes = field(repr=False)
    signature: tuple[tuple[str, str], ...]
    constants: dict[str, str] = field(default_factory=dict)
    num_warps: int = 4
    lds_bytes: int = 0
    kernel_hash: str = ""
    toolchain: dict[str, str] = field(default_factory=dict)
    knobs: dict[str, str] = field(default_factory=dict)
    compile_s: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    from_cache: bool = False

    @property
    def readable(self) -> bool:
        """Whether the machine code can be read here: gfx950 only."""
        return self.arch == "gfx950"

    @functools.cached_property
    def decoded(self) -> tuple[Program, KernelDescriptor]:
        """`program` and `descriptor`; whoever has read a code object already may set it."""
        if not self.readable:
            raise ValueError(f"arch: the machine code of {self.arch} cannot be read here; allowed: gfx950")
        if self.asm:
            program, descriptor = parse_amdgcn(self.asm, lds_bytes=self.lds_bytes)
        else:
            program, descriptor = read_code_object(self.binary, name=self.name, lds_bytes=self.lds_bytes)
        return program, replace(descriptor, block_threads=self.num_warps * WAVE_LANES)

    @property
    def program(self) -> Program:
        """The instructions, parsed at first use."""
        return self.decoded[0]

    @property
    def descriptor(self) -> KernelDescriptor:
        """What the hardware is told before the first instruction."""
        return self.decoded[1]

    @functools.cached_property
    def analysis(self) -> dict[str, Any]:
        """What `analyse` finds, at first use; the disk cache brings it along."""
        return analyse(self)

    @property
    def resources(self) -> Resources | None:
        """Registers, spills, scratch, LDS, occupancy; None for targets that cannot be read."""
        stored = self.analysis["resources"]
        return Resources(**stored) if stored else None

    @property
    def mix(self) -> dict[str, int]:
        """Static instruction count by class (`isa.CLASSES`); empty where `readable` is false."""
        return dict(self.analysis["mix"])

    @property
    def mfma(self) -> dict[str, int]:
        """Static count of each matrix instruction: a bf16 one among them means that Triton gave up on FP4."""
        return dict(self.analysis["mfma"])

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """Forwarding hazards (`isa.hazards`): must be empty for a kernel that is to be trusted."""
        return tuple(Hazard(**hazard) for hazard in self.analysis["hazards"])

    @property
    def title(self) -> str:
        return f"{self.name} on {self.arch}"

    def lines(self) -> Iterator[tuple[str, Any]]:
        """What a person wants to know first."""
        found = self.resources
        if found is not None:
            banks = f"{found.vgprs} VGPRs + {found.agprs} AGPRs, {found.sgprs} SGPRs"
            yield "registers", banks if self.readable else f"{found.vgprs} per thread"
            words, tone = spills_in_words(found.spilled_vgprs)
            yield "spills", badge(f"{words}, {found.scratch_bytes} B scratch per lane", tone)
            yield "LDS", f"{found.lds_bytes} B per workgroup of {self.num_warps} waves"
            yield "occupancy", f"{found.occupancy_waves_per_simd} waves per SIMD"
        if self.mix:
            yield "instructions", ", ".join(f"{count} {name}" for name, count in self.mix.items())
            yield "matrix", ", ".join(f"{count} {name}" for name, count in self.mfma.items()) or "none"
            said = "; ".join(hazard.message for hazard in self.hazards)
            yield "hazards", badge(said, "bad") if said else badge("none", "good")
        versions = ", ".join(f"{name} {version}" for name, version in self.toolchain.items())
        yield "compiled by", versions or "somebody else"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "decoded"}


@dataclass(frozen=True)
class CompiledPlan(Shown):
    """A plan with the machine code of each of its launches, in launch order."""

    plan: Any
    kernels: tuple[Compiled, ...]
    title = "Machine code"

    def lines(self) -> Iterator[Any]:
        """Each kernel's."""
        for kernel in self.kernels:
            yield kernel.title
            yield from kernel.lines()


def load_code_object(
    source: str | Path | bytes, name: str | None = None, lds_bytes: int | None = None, block_threads: int | None = None
) -> Compiled:
    """Load one kernel that somebody else compiled for gfx950 (.co, .hsaco): resources, mix and hazards as of ours.

    Args:
        source: path or contents.
        name: the kernel; may be left out where the file has one.
        lds_bytes: LDS that a launch allocates; without it what the kernel descriptor fixes.
        block_threads: threads of a workgroup; without it the most that the metadata allows.

    Raises:
        CompileError: kind "request": not a code object for gfx950, damaged, without that kernel, or the decoder's
            package is missing.
    """
    try:
        data = open_code_object(source).data
        program, descriptor = read_code_object(source, name, lds_bytes)
    except IsaError as error:
        raise CompileError(str(error), "request") from None
    threads = block_threads or descriptor.block_threads or WAVE_LANES
    explicit = [argument for argument in descriptor.args if not argument.hidden]
    compiled = Compiled(
        name=descriptor.name, arch="gfx950", asm="", binary=data,
        signature=tuple((entry.name or f"arg{place}", entry.kind) for place, entry in enumerate(explicit)),
        num_warps=-(-threads // WAVE_LANES), lds_bytes=descriptor.lds_bytes,
        kernel_hash=code_object_hash(data, descriptor.name),
    )  # fmt: skip
    compiled.decoded = program, replace(descriptor, block_threads=compiled.num_warps * WAVE_LANES)
    return compiled


def code_object_hash(data: bytes, name: str) -> str:
    """The `kernel_hash` of a kernel of a code object: 16 hex digits."""
    return hashlib.sha256(data + name.encode()).hexdigest()[:16]


def analyse(compiled: Compiled) -> dict[str, Any]:
    """Everything that is read from the machine code, as plain JSON values.

    Returns:
        {"resources": fields of `Resources` or None, "mix": class -> count, "mfma": mnemonic -> count,
        "hazards": fields of each `Hazard`}.
    """
    if not compiled.readable:
        found = _cubin_resources(compiled) if compiled.arch.startswith("sm_") else None
        return {"resources": asdict(found) if found else None, "mix": {}, "mfma": {}, "hazards": []}
    program, descriptor = compiled.program, compiled.descriptor
    counts = Counter(instruction.mnemonic for instruction in program)
    mix: Counter[str] = Counter()
    for mnemonic, count in counts.items():
        mix[classify(mnemonic)] += count
    used = ("vgprs", "agprs", "sgprs", "spilled_vgprs", "spilled_sgprs", "scratch_bytes", "lds_bytes")
    resources = {name: getattr(descriptor, name) for name in used}
    waves = max(1, descriptor.block_threads // WAVE_LANES)
    fit = occupancy(descriptor.vgprs, descriptor.agprs, descriptor.sgprs, descriptor.lds_bytes, waves)
    return {
        "resources": resources | {"occupancy_waves_per_simd": fit},
        "mix": dict(sorted(mix.items())),
        "mfma": {name: count for name, count in sorted(counts.items()) if classify(name) == "mfma"},
        "hazards": [asdict(hazard) for hazard in find_hazards(program, prebuilt=not compiled.asm)],
    }


@functools.cache
def analysis_version() -> str:
    """12 hex digits over the code that `analyse` runs: a stored analysis of other code is done again."""
    import mxfp4lab.gfx950.isa as isa

    files = [*sorted(Path(isa.__file__).parent.glob("*.py")), Path(__file__)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


def occupancy(vgprs: int, agprs: int, sgprs: int, lds_bytes: int, waves_per_workgroup: int) -> int:
    """Waves per SIMD that gfx950 can hold at once.

    min over three limits: 512 // ceil8(ceil4(vgprs) + agprs) with the unified register file; 8, or 7 above 100 scalar
    registers; and the workgroups that fit in 160 KiB of LDS, spread over four SIMDs. 0 if a workgroup does not fit.

    Args:
        vgprs, agprs: registers per lane.
        sgprs: scalar registers per wave, without vcc and its like.
        lds_bytes: per workgroup.
        waves_per_workgroup: waves of 64 lanes.
    """
    unified = _ceil(vgprs, ARCH_VGPR_GRANULE) + agprs if agprs else vgprs
    by_vgprs = VGPRS_PER_LANE // max(_ceil(unified, VGPR_GRANULE), VGPR_GRANULE)
    by_sgprs = MAX_WAVES_PER_SIMD if sgprs + WAVE_SGPRS_EXTRA <= 100 else MAX_WAVES_PER_SIMD - 1
    waves = min(by_vgprs, by_sgprs)
    # A workgroup's waves are resident together: whole workgroups only, spread over the SIMDs.
    groups = waves * SIMDS_PER_CU // waves_per_workgroup
    if waves_per_workgroup < SIMDS_PER_CU:
        groups = waves * (SIMDS_PER_CU // waves_per_workgroup)
    if lds_bytes:
        groups = min(groups, LDS_BYTES // _ceil(lds_bytes, LDS_GRANULE) if lds_bytes <= LDS_BYTES else 0)
    return min(waves, math.ceil(groups * waves_per_workgroup / SIMDS_PER_CU))


def _ceil(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _cubin_resources(compiled: Compiled) -> Resources | None:
    """Registers and local memory of an NVIDIA kernel, by the cuobjdump that Triton brings; None where there is none.

    The local-memory stack stands for the spills (4 bytes each). Occupancy counts warps per SM partition, of which an SM
    has four, like SIMDs.
    """
    from triton import knobs

    with tempfile.NamedTemporaryFile(prefix="mxfp4lab-", suffix=".cubin") as file:
        file.write(compiled.binary)
        file.flush()
        try:
            command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
            said = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            return None
    used = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if not used:
        return None
    registers, stack = int(used[1]), int(used[2])
    warps = min(SM90_WARPS_PER_PARTITION, SM90_REGISTERS_PER_PARTITION // (32 * _ceil(max(registers, 1), 8)))
    groups = warps * 4 // compiled.num_warps
    if compiled.lds_bytes:
        groups = min(groups, SM90_SHARED_PER_SM // (compiled.lds_bytes + SM90_SHARED_RESERVED))
    waves = min(warps, math.ceil(groups * compiled.num_warps / 4))
    return Resources(registers, 0, 0, stack // 4, 0, stack, compiled.lds_bytes, waves)
