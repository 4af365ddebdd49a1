"""A compiled kernel: machine code, what it occupies and contains, and the source behind each instruction."""

from __future__ import annotations

import functools
import linecache
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mxfp4lab.display import badge, card, facts, spills_in_words, text_facts
from mxfp4lab.gfx950.isa import KernelDescriptor, Program, classify, parse_amdgcn
from mxfp4lab.gfx950.isa.hazards import Hazard, find_hazards
from mxfp4lab.gfx950.toolchain.resources import Resources, cubin_resources, occupancy


@dataclass
class Compiled:
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
            program, descriptor = parse_amdgcn(self.asm, lds_bytes=self.lds_bytes)
        else:
            from mxfp4lab.gfx950.isa.codeobject import read_code_object

            program, descriptor = read_code_object(self.binary, name=self.name)
        return program, replace(descriptor, block_threads=self.num_warps * descriptor.wavefront)

    def use_decoded(self, program: Program, descriptor: KernelDescriptor) -> None:
        """Keep what a code object's reader has already decoded."""
        descriptor = replace(descriptor, block_threads=self.num_warps * descriptor.wavefront)
        self.__dict__["_parsed"] = program, descriptor

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
        stored = self._analysed()["resources"]
        return Resources(**stored) if stored else None

    @property
    def mix(self) -> dict[str, int]:
        """Static instruction count by class (`isa.CLASSES`); empty where `readable` is false."""
        return dict(self._analysed()["mix"])

    @property
    def mfma(self) -> dict[str, int]:
        """Static count of each matrix instruction: a bf16 one among them means that Triton gave up on FP4."""
        return dict(self._analysed()["mfma"])

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """Forwarding hazards (`isa.hazards`): must be empty for a kernel that is to be trusted."""
        return tuple(Hazard(**hazard) for hazard in self._analysed()["hazards"])

    def _analysed(self) -> dict[str, Any]:
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

    def __str__(self) -> str:
        return text_facts(f"{self.name} on {self.arch}", self._facts())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        rows = self._facts()
        resources = self.resources
        if "spills" in rows and resources is not None:
            tone = spills_in_words(resources.spilled_vgprs)[1]
            rows["spills"] = badge(rows["spills"], tone)
        if "hazards" in rows:
            rows["hazards"] = badge(rows["hazards"], "bad" if self.hazards else "good")
        return card(f"{self.name} on {self.arch}", facts(rows))

    def _facts(self) -> dict[str, Any]:
        """What a person wants to know first."""
        rows: dict[str, Any] = {}
        resources = self.resources
        if resources is not None:
            banks = f"{resources.vgprs} VGPRs + {resources.agprs} AGPRs, {resources.sgprs} SGPRs"
            rows["registers"] = banks if self.readable else f"{resources.vgprs} per thread"
            rows["spills"] = (
                f"{spills_in_words(resources.spilled_vgprs)[0]}, {resources.scratch_bytes} B scratch per lane"
            )
            rows["LDS"] = f"{resources.lds_bytes} B per workgroup of {self.num_warps} waves"
            rows["occupancy"] = f"{resources.occupancy_waves_per_simd} waves per SIMD"
        if self.mix:
            rows["instructions"] = ", ".join(f"{count} {name}" for name, count in self.mix.items())
            rows["matrix"] = ", ".join(f"{count} {name}" for name, count in self.mfma.items()) or "none"
            rows["hazards"] = "; ".join(hazard.message for hazard in self.hazards) or "none"
        rows["compiled by"] = (
            ", ".join(f"{name} {version}" for name, version in self.toolchain.items()) or "somebody else"
        )
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_parsed"}


@dataclass(frozen=True)
class CompiledPlan:
    """A plan with the machine code of each of its launches, in launch order."""

    plan: Any
    kernels: tuple[Compiled, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.kernels))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return "".join(kernel._repr_html_() for kernel in self.kernels)


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
                                           max(1, descriptor.block_threads // descriptor.wavefront)),
    )  # fmt: skip
    return {
        "resources": asdict(resources),
        "mix": dict(sorted(mix.items())),
        "mfma": {name: count for name, count in sorted(counts.items()) if classify(name) == "mfma"},
        "hazards": [asdict(hazard) for hazard in find_hazards(program)],
    }


@functools.cache
def analysis_version() -> str:
    """12 hex digits over the code that `analyse` runs: a stored analysis of other code is done again."""
    import hashlib

    import mxfp4lab.gfx950.isa as isa

    files = [*sorted(Path(isa.__file__).parent.glob("*.py")), Path(__file__), Path(__file__).with_name("resources.py")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
