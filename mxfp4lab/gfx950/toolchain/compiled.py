"""A compiled kernel: machine code, what it occupies and contains, and the source behind each instruction."""

from __future__ import annotations

import functools
import hashlib
import linecache
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mxfp4lab.display import Shown, badge, spills_in_words
from mxfp4lab.gfx950.isa import (
    Hazard,
    KernelDescriptor,
    Program,
    classify,
    find_hazards,
    parse_amdgcn,
    read_code_object,
)
from mxfp4lab.gfx950.toolchain.resources import Resources, cubin_resources, occupancy
from mxfp4lab.hardware import WAVE_LANES


@dataclass
class Compiled(Shown):
    """One kernel for one target.

    Attributes:
        name: the kernel's symbol.
        arch: "gfx950", "sm_90", ...
        asm: amdgcn text (PTX for sm_90); empty for a code object that came without one.
        binary: the code object (hsaco, cubin).
        signature: (name, type) of the run-time arguments in order; arguments folded at compile time are absent.
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
        analysis: what `analyse` found, empty until somebody asks.
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
    analysis: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def readable(self) -> bool:
        """Whether the machine code can be read here: gfx950 only."""
        return self.arch == "gfx950"

    @functools.cached_property
    def _parsed(self) -> tuple[Program, KernelDescriptor]:
        if not self.readable:
            raise ValueError(f"arch: the machine code of {self.arch} cannot be read here; allowed: gfx950")
        if self.asm:
            found = parse_amdgcn(self.asm, lds_bytes=self.lds_bytes)
        else:
            found = read_code_object(self.binary, name=self.name)
        return self._with_threads(*found)

    def use_decoded(self, program: Program, descriptor: KernelDescriptor) -> None:
        """Keep what a code object's reader has already decoded."""
        self.__dict__["_parsed"] = self._with_threads(program, descriptor)

    def _with_threads(self, program: Program, descriptor: KernelDescriptor) -> tuple[Program, KernelDescriptor]:
        return program, replace(descriptor, block_threads=self.num_warps * WAVE_LANES)

    @property
    def program(self) -> Program:
        """The instructions, parsed at first use."""
        return self._parsed[0]

    @property
    def descriptor(self) -> KernelDescriptor:
        """What the hardware is told before the first instruction."""
        return self._parsed[1]

    @property
    def resources(self) -> Resources | None:
        """Registers, spills, scratch, LDS, occupancy; None for targets that cannot be read."""
        stored = self.analysed()["resources"]
        return Resources(**stored) if stored else None

    @property
    def mix(self) -> dict[str, int]:
        """Static instruction count by class (`isa.CLASSES`); empty where `readable` is false."""
        return dict(self.analysed()["mix"])

    @property
    def mfma(self) -> dict[str, int]:
        """Static count of each matrix instruction: a bf16 one among them means that Triton gave up on FP4."""
        return dict(self.analysed()["mfma"])

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """Forwarding hazards (`isa.hazards`): must be empty for a kernel that is to be trusted."""
        return tuple(Hazard(**hazard) for hazard in self.analysed()["hazards"])

    def analysed(self) -> dict[str, Any]:
        """`analyse` of this kernel, done once."""
        if not self.analysis:
            self.analysis = analyse(self)
        return self.analysis

    def source_line(self, index: int) -> tuple[str, int, str] | None:
        """(file, line, text of the line) behind instruction `index`; None where the ISA does not tell.

        The text is empty where the file is not on this machine.
        """
        place = self.program[index].source
        if place is None or place[1] <= 0:
            return None
        return place[0], place[1], linecache.getline(place[0], place[1]).strip()

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
        return {name: value for name, value in self.__dict__.items() if name != "_parsed"}


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


def analyse(compiled: Compiled) -> dict[str, Any]:
    """Everything that is read from the machine code, as plain JSON values.

    Returns:
        {"resources": fields of `Resources` or None, "mix": class -> count, "mfma": mnemonic -> count,
        "hazards": fields of each `Hazard`}.
    """
    if not compiled.readable:
        found = None
        if compiled.arch.startswith("sm_"):
            found = cubin_resources(compiled.binary, compiled.lds_bytes, compiled.num_warps)
        return {"resources": asdict(found) if found else None, "mix": {}, "mfma": {}, "hazards": []}
    program, descriptor = compiled.program, compiled.descriptor
    counts = Counter(instruction.mnemonic for instruction in program)
    mix: Counter[str] = Counter()
    for mnemonic, count in counts.items():
        mix[classify(mnemonic)] += count
    resources = Resources(
        vgprs=descriptor.vgprs, agprs=descriptor.agprs, sgprs=descriptor.sgprs,
        spilled_vgprs=descriptor.spilled_vgprs, spilled_sgprs=descriptor.spilled_sgprs,
        scratch_bytes=descriptor.scratch_bytes, lds_bytes=descriptor.lds_bytes,
        occupancy_waves_per_simd=occupancy(descriptor.vgprs, descriptor.agprs, descriptor.sgprs, descriptor.lds_bytes,
                                           max(1, descriptor.block_threads // WAVE_LANES)),
    )  # fmt: skip
    return {
        "resources": asdict(resources),
        "mix": dict(sorted(mix.items())),
        "mfma": {name: count for name, count in sorted(counts.items()) if classify(name) == "mfma"},
        "hazards": [asdict(hazard) for hazard in find_hazards(program, prebuilt=not compiled.asm)],
    }


@functools.cache
def analysis_version() -> str:
    """12 hex digits over the code that `analyse` runs: a stored analysis of other code is done again."""
    import mxfp4lab.gfx950.isa as isa

    files = [*sorted(Path(isa.__file__).parent.glob("*.py")), Path(__file__), Path(__file__).with_name("resources.py")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
