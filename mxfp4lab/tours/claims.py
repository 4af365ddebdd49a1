"""Claims from the field about this conversion, each put to a test that computes its own verdict."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch

from mxfp4lab.aiter.install import AiterError
from mxfp4lab.formats import BLOCK, cvt_scalef32_pk_fp4_f32, decode_e8m0, quantize_mxfp4
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.shapes import Shape
from mxfp4lab.tours.padding import pad_model, pad_prebuilt, short_scale_buffer


@dataclass(frozen=True)
class Claim:
    """A claim, whether it holds, the numbers that say so, and what kind of evidence they are ("" = arithmetic)."""

    claim: str
    holds: bool
    because: str
    evidence: str = ""


def scale_operand_shares(rows: int = 256, k: int = 3072, seed: int = 0) -> dict[str, float]:
    """Share of packed bytes that differ from the quantizer's when the instruction's scale operand is given in some way.

    `v_cvt_scalef32_pk_fp4_f32` divides by its scale operand: it wants 2^e, while the software multiplies by 2^-e.

    Args:
        rows, k: size of the random normal bf16 matrix.
        seed: of its values.

    Returns:
        how the operand was given -> share of differing bytes, 0..1.
    """
    x = torch.randn((rows, k), generator=torch.Generator().manual_seed(seed)).bfloat16().float()
    packed, scale = quantize_mxfp4(x)
    operands = {
        "2^e, which it divides by": decode_e8m0(scale),
        "2^-e, as the software multiplies by": decode_e8m0((254 - scale.int()).to(torch.uint8)),
        "1.0, the scale forgotten": torch.ones_like(scale, dtype=torch.float32),
        "the byte as a number": scale.float(),
    }
    shares = {}
    for name, operand in operands.items():
        spread = operand.repeat_interleave(BLOCK // 2, dim=1)
        shares[name] = float((cvt_scalef32_pk_fp4_f32(x[:, 0::2], x[:, 1::2], spread) != packed).float().mean())
    return shares


def hardware_convert_claim() -> Claim:
    """'The hardware convert differs in 97.6 % of bytes.'"""
    shares = scale_operand_shares()
    right, inverse = shares["2^e, which it divides by"], shares["2^-e, as the software multiplies by"]
    because = (
        f"given 2^e it differs in {100 * right:.1f} % of bytes; given the multiplier 2^-e instead, in "
        f"{100 * inverse:.1f} %: the operand was inverted, not the instruction wrong"
    )
    return Claim("the hw convert differs in 97.6 % of bytes", right > 0, because)


def interpreter_answers() -> dict[str, list[float]]:
    """What Triton's interpreter makes of `interpreter_probe`, in a process of its own.

    Raises:
        RuntimeError: if that process fails; with its last line.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (str(REPO_ROOT), environment.get("PYTHONPATH")) if p)
    command = [sys.executable, "-W", "ignore", "-m", "mxfp4lab.tours.interpreter_probe"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the interpreter failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compiled_answers() -> dict[str, list[float]]:
    """What the same kernel gives as gfx950 machine code, executed by the emulator."""
    from mxfp4lab.gfx950 import compile_kernel, run
    from mxfp4lab.tours.interpreter_probe import VALUES, probe

    kernel = compile_kernel(
        probe, {"x_ptr": "*fp32", "not_ptr": "*i8", "bf16_ptr": "*bf16"}, {"N": 4}, {"num_warps": 1}
    )
    x = torch.tensor(VALUES)
    inverted, rounded = torch.zeros(4, dtype=torch.int8), torch.zeros(4, dtype=torch.bfloat16)
    values = {"x_ptr": x, "not_ptr": inverted, "bf16_ptr": rounded}
    run(kernel, (1, 1, 1), *(values[name] for name, _ in kernel.signature))
    return {"not": inverted.tolist(), "bf16": rounded.tolist()}


def interpreter_claim() -> Claim:
    """'Triton's interpreter can serve as the reference.'"""
    told, true = interpreter_answers(), compiled_answers()
    wrong = [name for name in true if told[name] != true[name]]
    because = "; ".join(f"{name}: interpreter {told[name]}, machine code {true[name]}" for name in wrong) or (
        "it agreed with the machine code on both probes"
    )
    return Claim("the interpreter can serve as reference", not wrong, because, "emulated")


def nvidia_claim(install: Any) -> Claim:
    """'aiter's op can serve as the reference on an NVIDIA GPU.'

    The op turns the (possibly negative) float exponent into uint8. PTX's `cvt.rzi.u16.f32` clamps what is out of range
    (PTX ISA, cvt: "integer destination is clamped"), so every negative exponent becomes 0 and its byte 0 + 127.

    Args:
        install: from `oracle.install.find_aiter`.

    Raises:
        AiterError: if its kernel does not compile.
    """
    from mxfp4lab.aiter.quantizer import compile_quantizer

    ptx = compile_quantizer(install, arch="sm_90").asm
    found = sorted(set(re.findall(r"cvt\.rzi(?:\.sat)?\.(?:u8|u16|u32|s8|s16|s32)\.f32", ptx)))
    clamping = [name for name in found if ".u" in name]
    x = torch.randn((256, 512), generator=torch.Generator().manual_seed(0))
    bytes_right = quantize_mxfp4(x)[1]
    share = float((bytes_right < 127).float().mean())
    because = (
        f"compiled for sm_90 the exponent goes through {', '.join(found)}, which clamps negative values to 0: "
        f"{100 * share:.0f} % of the blocks of a normal matrix would get scale byte 127 instead of their own"
        if clamping
        else f"compiled for sm_90 the exponent goes through {', '.join(found) or 'no float-to-integer conversion'}"
    )
    return Claim("aiter's op can serve as reference on an NVIDIA GPU", not clamping, because)


def padding_claims(install: Any = None) -> list[Claim]:
    """'Padding with 127 is harmless' and 'M < 32 needs no padding', put to AMD's prebuilt GEMM on the emulator.

    Without an aiter, or without the decoder of code objects, arithmetic answers the first alone.

    Args:
        install: from `oracle.install.find_aiter`, or None.
    """
    tail, small = Shape(20, 256, 1664), Shape(4, 256, 512)
    try:
        if install is None:
            raise AiterError("no aiter")
        leak, evidence = pad_prebuilt(tail, "127", install=install), "emulated"
        bare, enough = (short_scale_buffer(small, given, install=install) for given in (4 * 16, 32 * 16))
    except (AiterError, ImportError):
        leak, evidence, bare = pad_model(tail, "127"), "", None
    because = f"{leak.kernel}, {tail}: {leak.refused} of {leak.outputs} outputs refused; zero is the harmless byte"
    found = [Claim("padding with 127 is harmless", leak.refused == 0, because, evidence)]
    if bare is not None:
        because = (
            f"{small}: given {bare.given} bytes, those of 4 rows, {bare.reads_past_the_end} loads leave the buffer and "
            f"{bare.refused} of {bare.outputs} outputs are refused; given {enough.given}, {enough.refused}"
        )
        found.append(Claim("M < 32 needs no padding", bare.refused == 0, because, evidence))
    return found
