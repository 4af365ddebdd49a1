"""Executing plans with stand-ins for the GPU: which tensor goes where, what is fresh, what is kept, what is refused."""

import ctypes
import struct
from types import SimpleNamespace

import pytest
import torch

from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import CompileError, compile_plan
from mxfp4lab.gpu import execute, measure, module
from mxfp4lab.gpu.comparators import available_comparators
from mxfp4lab.gpu.execute import PlanRunner
from mxfp4lab.plan import Buffer, CodeObjectLaunch, Plan, Ref, build_plan
from mxfp4lab.shapes import Shape
from mxfp4lab.task import input_dict, reference_output
from mxfp4lab.workers.process import Worker
from tests.test_gpu_timing import FakeDevice

SHAPE = Shape(16, 64, 512)


@pytest.fixture
def launched(monkeypatch):
    """Every launch of a compiled kernel, as (kernel name, grid, arguments), instead of the launch."""
    calls = []

    class Kernel:
        def __init__(self, launch):
            self.launch = launch

        def __getitem__(self, grid):
            return lambda *arguments: calls.append((self.launch.name, grid, arguments))

    monkeypatch.setattr(execute, "launchable", lambda launch, plan, compiled: Kernel(launch))
    return calls


def _runner(plan):
    return PlanRunner(plan, device="cpu").bind(input_dict(plan.shape, 3))


def test_arguments_are_passed_in_the_kernel_s_order_constants_included(launched):
    config = GemmConfig(convert="sw_bits", a_mode="prequant", block_k=256, split_k=2)
    plan = build_plan("hopper", config, SHAPE, "sm_90")
    c = _runner(plan)()
    (first, grid, quantize), (second, _, gemm) = launched
    assert (first, second, grid) == ("hopper_quantize", "hopper_gemm", plan.launches[0].grid)
    names = [parameter.name for parameter in plan.launches[1].fn.params]
    named = dict(zip(names, gemm, strict=True))
    assert named["c_ptr"] is c and named["a_ptr"] is quantize[1]  # the workspace that the first launch wrote
    assert (named["N"], named["BLOCK_N"], named["SPLIT_K"], named["QUANTIZE_A"]) == (64, 64, 2, False)
    assert named["count_ptr"].tolist() == [0] and named["partial_ptr"].dtype == torch.float32


def test_outputs_are_fresh_and_workspaces_are_kept(launched):
    plan = build_plan("hopper", GemmConfig(convert="sw_bits", split_k=2), SHAPE, "sm_90")
    run = _runner(plan)
    first, second = run(), run()
    assert first.data_ptr() != second.data_ptr()
    assert launched[0][2][4] is launched[1][2][4]


def test_an_output_with_a_fill_holds_it_on_every_call(launched):
    plan = build_plan("fused_rowmajor", GemmConfig(convert="sw_bits"), SHAPE, "sm_90")
    padded = [Buffer("c", (32, 64), "bf16", "output", fill=0) if b.name == "c" else b for b in plan.buffers]
    run = _runner(Plan(plan.variant, plan.config, plan.shape, plan.arch, tuple(padded), plan.launches))
    first = run()
    first.fill_(7)
    assert run().abs().sum() == 0 and first.shape == (16, 64)  # C is the first M rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda inputs: inputs.pop("b_q"), "inputs lack 'b_q'"),
        (lambda inputs: inputs.update(a=inputs["a"].float()), r"a is torch.float32 \(16, 512\); the plan needs"),
        (lambda inputs: inputs.update(a=inputs["a"][:8]), r"a is torch.bfloat16 \(8, 512\)"),
        (lambda inputs: inputs.update(b=inputs["b"].T.contiguous().T), "b must be contiguous"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_name(change, message):
    plan = build_plan("fused_rowmajor", GemmConfig(convert="sw_bits"), SHAPE, "sm_90")
    inputs = input_dict(SHAPE, 3)
    change(inputs)
    with pytest.raises(ValueError, match=message):
        PlanRunner(plan, device="cpu").bind(inputs)


def test_the_task_s_own_dtypes_are_bytes_to_a_plan(launched):
    plan = build_plan("fused_rowmajor", GemmConfig(convert="sw_bits"), SHAPE, "sm_90")
    inputs = input_dict(SHAPE, 3)
    inputs["b_q"] = inputs["b_q"].view(torch.float4_e2m1fn_x2)
    inputs["b_scale_sh"] = inputs["b_scale_sh"].view(torch.float8_e8m0fnu)
    PlanRunner(plan, device="cpu").bind(inputs)()
    assert all(value.dtype in (torch.uint8, torch.bfloat16) for value in launched[0][2] if hasattr(value, "dtype"))


@pytest.mark.parametrize(("variant", "arch"), [("hopper", "sm_90"), ("fused_preshuffled", "gfx950"),
                                               ("sliced_preshuffled", "gfx950")])  # fmt: skip
def test_machine_code_compiled_elsewhere_becomes_triton_s_own_kernel(variant, arch):
    plan = build_plan(variant, None, (16, 2112, 7168), arch)
    compiled = compile_plan(plan).kernels[-1]
    kernel = execute.launchable(plan.launches[-1], plan, compiled)
    assert kernel.kernel == compiled.binary and kernel.name == compiled.name
    assert (kernel.metadata.num_warps, kernel.metadata.shared) == (compiled.num_warps, compiled.lds_bytes)
    assert kernel.src.fn is execute.unwrap(plan.launches[-1].fn)


def test_an_argument_segment_is_packed_as_the_kernel_reads_it():
    segment = module.pack_arguments([(0, 8, 1 << 40), (16, 4, 1.5), (20, 4, -1), (32, 8, 7)])
    assert struct.unpack_from("<Q", segment, 0)[0] == 1 << 40
    assert struct.unpack_from("<fi", segment, 16) == (1.5, -1)
    assert len(segment) == 40 and segment[8:16] == bytes(8)
    with pytest.raises(ValueError, match="size 2; allowed: 4 or 8"):
        module.pack_arguments([(0, 2, 1)])


class FakeDriver:
    """A driver library that notes its calls; `hipModuleLaunchKernel` also keeps the argument segment."""

    def __init__(self, code=0):
        self.calls, self.code = [], code

    def hipModuleLoadData(self, handle, binary):
        self.calls.append(("load", binary.raw))
        return 0

    def hipModuleGetFunction(self, handle, loaded, name):
        self.calls.append(("function", name))
        return 0

    def hipModuleLaunchKernel(self, function, *rest):
        *sizes, queue, _, extra = rest
        size = ctypes.cast(extra[3], ctypes.POINTER(ctypes.c_size_t)).contents.value
        segment = ctypes.string_at(extra[1], size)
        sizes = [value.value for value in sizes]
        self.calls.append(("launch", sizes, queue.value, extra[0], extra[2], extra[4], segment))
        return self.code

    def hipGetErrorString(self, code):
        return b"invalid configuration argument"


def test_a_code_object_is_launched_with_its_segment_and_this_call_s_output(monkeypatch):
    driver = FakeDriver()
    driver.hipGetErrorString = lambda code: b"?"
    monkeypatch.setattr(module, "_open", lambda names: driver)
    loaded = module.Module(b"\x7fELF", "gemm_asm", names=module.HIP)
    call = loaded.prepare((22, 1, 2), 256, [(0, 8, 0), (16, 8, 4096), (32, 4, 2.0)], {"c": 0})
    call(77, {"c": 8192})
    call(77, {"c": 12288})
    assert driver.calls[:2] == [("load", b"\x7fELF"), ("function", b"gemm_asm")]
    _, sizes, queue, pointer, size, end, segment = driver.calls[2]
    assert (sizes, queue, pointer, size, end) == ([22, 1, 2, 256, 1, 1, 0], 77, 1, 2, 3)
    assert struct.unpack_from("<QQQQf", segment) == (8192, 0, 4096, 0, 2.0)
    assert struct.unpack_from("<Q", driver.calls[3][-1])[0] == 12288


def test_a_launch_that_the_driver_refuses_says_so(monkeypatch):
    class Function:
        restype = None

        def __call__(self, code):
            return b"invalid configuration argument"

    driver = FakeDriver(code=9)
    driver.hipGetErrorString = Function()
    monkeypatch.setattr(module, "_open", lambda names: driver)
    call = module.Module(b"x", "k", names=module.HIP).prepare((1, 1, 1), 64, [(0, 8, 0)])
    with pytest.raises(RuntimeError, match=r"hipModuleLaunchKernel: error 9 \(invalid configuration argument\)"):
        call(0, {})


def test_a_plan_with_a_code_object_binds_addresses_and_leaves_the_output_open(monkeypatch):
    prepared = []

    class FakeModule:
        def __init__(self, binary, name):
            prepared.append((binary, name))

        def prepare(self, grid, block, args, places):
            prepared.append((grid, block, args, places))
            return lambda queue, addresses: prepared.append(addresses)

    monkeypatch.setattr(module, "Module", FakeModule)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Queue", (), {"cuda_stream": 5})())
    plan = build_plan("fused_rowmajor", GemmConfig(convert="sw_bits"), SHAPE, "sm_90")
    launch = CodeObjectLaunch("asm", "f4gemm/x.co", (1, 1, 1), 256, ((0, 8, Ref("c")), (16, 8, Ref("a")), (32, 4, 1.0)))
    compiled = type("Compiled", (), {"binary": b"co"})()
    monkeypatch.setattr(execute, "compile_launch", lambda launch, buffers, arch: compiled)
    runner = PlanRunner(Plan("x", plan.config, plan.shape, "gfx950", plan.buffers, (launch,)), device="cpu")
    inputs = input_dict(SHAPE, 3)
    c = runner.bind(inputs)()
    assert prepared[0] == (b"co", "asm")
    assert prepared[1] == ((1, 1, 1), 256, [(0, 8, 0), (16, 8, inputs["a"].data_ptr()), (32, 4, 1.0)], {"c": 0})
    assert prepared[2] == {"c": c.data_ptr()}


def test_comparators_that_are_there_run_and_the_others_say_why():
    inputs = input_dict(SHAPE, 3)
    found, missing = available_comparators(SHAPE, inputs)
    by_name = {comparator.name: comparator for comparator in found}
    assert not by_name["mm_bf16"].same_task and "no quantization" in by_name["mm_bf16"].about
    reference = reference_output(tuple(inputs.values()))
    assert torch.equal(by_name["two_step_torch"].call(), reference)
    assert all(":" in reason for reason in missing.values()) and not set(by_name) & set(missing)


def test_an_aiter_that_is_there_gets_the_task_s_types_and_its_padding_is_cut_off(tmp_path):
    with Worker() as worker:
        said = worker.run("tests.gpu_tasks:aiter_comparators", {"folder": str(tmp_path)})
    assert said.status == "ok", said.reason
    assert said.value["c"] == [20, 64], said.value["missing"]
    fp4, e8m0 = "torch.float4_e2m1fn_x2", "torch.float8_e8m0fnu"
    assert said.value["call"] == [f"{fp4}[20, 256]", f"{fp4}[64, 256]", f"{e8m0}[256, 16]", f"{e8m0}[256, 16]", True]
    assert "gemm_a16wfp4" in said.value["missing"]["aiter_fused"]


class Judged:
    """A bench of a worker process with a device of its own, and runners that return what they are told."""

    def __init__(self, monkeypatch, results):
        inputs = input_dict(SHAPE, 3)
        reference = reference_output(tuple(inputs.values()))
        self.device, self.reference = FakeDevice(), reference
        self.device.null_call = lambda: lambda: None
        self.device.info = type("Info", (), {"index": 0, "last_level_cache_bytes": 1 << 20})()
        self.device.overwrite_bytes = 1 << 30
        bench = measure.Bench(SHAPE, 3, inputs, reference, 1.0, self.device, 5.8)
        left = [reference if result == "right" else reference + 1 for result in results]

        def call():
            self.device.now += 9.0
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(measure, "_bench_for", lambda shape, seed: bench)
        monkeypatch.setattr(measure, "PlanRunner", lambda plan: SimpleNamespace(bind=lambda inputs: call))

    def measure(self, **options):
        config = GemmConfig(convert="sw_bits").to_dict()
        return measure.measure_plan("fused_rowmajor", config, str(SHAPE), "sm_90", 3, **options)


def test_a_right_plan_is_timed_beside_the_floor(monkeypatch):
    fields = Judged(monkeypatch, ["right"]).measure()
    assert (fields["status"], fields["verified"], fields["bf16_identical"]) == ("ok", "gpu", 1.0)
    assert (fields["latency_us"], fields["regime"]) == (9.0, "leaderboard")
    assert fields["detail"]["timing"]["floor_us"] == 5.8 and fields["detail"]["statistic"] == "p50"


def test_a_wrong_plan_is_not_timed(monkeypatch):
    judged = Judged(monkeypatch, ["wrong"])
    fields = judged.measure()
    assert fields["status"] == "incorrect" and "latency_us" not in fields
    assert "overwrite" not in judged.device.log


def test_a_plan_that_turns_wrong_while_it_is_timed_is_incorrect(monkeypatch):
    fields = Judged(monkeypatch, ["right", "wrong"]).measure()
    assert fields["status"] == "incorrect" and "right at first" in fields["reason"] and "latency_us" not in fields


def test_a_plan_that_needs_too_much_shared_memory_is_screened(monkeypatch):
    judged = Judged(monkeypatch, ["right"])

    def refuse(inputs):
        raise CompileError("needs 301056 B of LDS", "lds")

    monkeypatch.setattr(measure, "PlanRunner", lambda plan: SimpleNamespace(bind=refuse))
    said = {"status": "screened", "reason": "lds: needs 301056 B of LDS", "regime": "leaderboard"}
    assert judged.measure() == said


def test_finalists_are_compared_with_the_floor_beside_them(monkeypatch):
    judged = Judged(monkeypatch, ["right"])
    configs = [GemmConfig(convert="sw_bits", block_n=block_n) for block_n in (64, 128)]
    plans = [{"variant": "fused_rowmajor", "config": config.to_dict()} for config in configs]
    said = measure.compare_plans(plans, str(SHAPE), "sm_90", 3)
    assert said["verdict"]["kind"] == "tie" and said["verdict"]["order"] == [0, 1]  # the simpler first
    assert said["floor_us"] == 0.0 and said["timings"]["1"]["floor_us"] == 0.0
    assert said["checks"] == {"0": 1.0, "1": 1.0} and judged.device.log.count("overwrite") > 6


def test_a_finalist_whose_c_is_wrong_has_no_time_and_no_place_in_the_verdict(monkeypatch):
    judged = Judged(monkeypatch, ["right"])
    plans = [
        {"variant": "fused_rowmajor", "config": GemmConfig(convert="sw_bits", block_n=n).to_dict()} for n in (64, 32)
    ]
    binds = iter([lambda: judged.reference, lambda: judged.reference + 1])
    monkeypatch.setattr(measure, "PlanRunner", lambda plan: SimpleNamespace(bind=lambda inputs: next(binds)))
    said = measure.compare_plans(plans, str(SHAPE), "sm_90", 3)
    assert said["verdict"] == {"kind": "winner", "order": [0], "message": said["verdict"]["message"]}
    assert list(said["timings"]) == ["0"] and said["wrong"]["1"].startswith("incorrect: ")
    assert said["checks"]["0"] == 1.0 and said["checks"]["1"] < 1.0


def test_a_finalist_that_turns_wrong_while_it_is_timed_is_out_and_nobody_may_be_left(monkeypatch):
    judged = Judged(monkeypatch, ["right"])
    right = iter([judged.reference] * 12)
    runner = SimpleNamespace(bind=lambda inputs: lambda: next(right, judged.reference + 1))
    monkeypatch.setattr(measure, "PlanRunner", lambda plan: runner)
    plans = [{"variant": "fused_rowmajor", "config": GemmConfig(convert="sw_bits").to_dict()}]
    said = measure.compare_plans(plans, str(SHAPE), "sm_90", 3, rule={"max_repeats": 10, "min_repeats": 10})
    assert said["verdict"] is None and said["timings"] == {}
    assert "right at first, wrong after 10 timed calls" in said["wrong"]["0"]
