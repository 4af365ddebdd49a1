"""Counter files of rocprofv3 and ncu: read, and set beside emulated counts and compiled kernels."""

import json

import pytest

from mxfp4lab.cli import run
from mxfp4lab.counters import (
    base_name,
    beside_emulation,
    parse_counters,
    read_counters,
    report,
    stalls,
)
from mxfp4lab.plan import build_plan
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape

HEADER = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"'
)


def rocprof_row(dispatch, name, counter, value, grid=28672, start=1000, end=8000, agent='"Agent 4"'):
    return f'1,{dispatch},{agent},1,77,77,{grid},9,"{name}",256,8192,0,96,32,48,"{counter}",{value},{start},{end}'


ROCPROF = "\n".join(
    [HEADER]
    + [rocprof_row(1, "gemm_fused.kd", *pair) for pair in (
        ("SQ_WAVES", "448.000000"), ("SQ_INSTS_VALU", "141120"), ("SQ_INSTS_MFMA", "3584"), ("SQ_INSTS_VMEM", "8960"),
        ("SQ_INSTS_SALU", "20000"), ("SQ_INSTS_SMEM", "2400"), ("SQ_LDS_BANK_CONFLICT", "896"))]
    + [rocprof_row(2, "gemm_fused.kd", "SQ_WAVES", "448", start=9000, end=14000)]
    + [rocprof_row(3, "reduce_tiles(float*, __hip_bfloat16*)", "SQ_WAVES", "64", grid=4096)]
    + [rocprof_row(4, "Cijk_Ailk", "SQ_WAVES", "5", grid=320)]
)  # fmt: skip

COUNTS = Counts(
    Shape(64, 7168, 2048),
    (
        LaunchCounts("gemm_fused", workgroups=112, waves_per_workgroup=4, valu_per_wave=307.0, mfma_per_wave=8.0,
                     vmem_per_wave=20.0, scalar_per_wave=50.0),
        LaunchCounts("reduce_tiles", workgroups=16, waves_per_workgroup=4),
    ),
)  # fmt: skip

NCU_RAW = "\n".join([
    "==PROF== Connected to process 417",
    '"ID","Kernel Name","Block Size","Grid Size","dram__bytes_read.sum","gpu__time_duration.sum","launch__grid_size",'
    '"launch__registers_per_thread","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_wait_not_issued_per_issue_active.ratio"',
    '"","","","","Mbyte","us","","register/thread","inst","inst","inst"',
    '"0","hopper_gemm","(128, 1, 1)","(112, 1, 1)","8.08","10.40","112","151","0.54","0.65","0.1"',
    '"1","hopper_gemm","(128, 1, 1)","(33, 4, 1)","8.29","10.30","132","137","0.48","0.48","0.1"',
])  # fmt: skip

NCU_DETAILS = "\n".join([
    '"ID","Process ID","Kernel Name","Block Size","Grid Size","Section Name",'
    '"Metric Name","Metric Unit","Metric Value"',
    '"0","7","void gemm<float>(float *)","(256, 1, 1)","(4, 2, 1)","Launch","Registers Per Thread","","1,024"',
    '"0","7","void gemm<float>(float *)","(256, 1, 1)","(4, 2, 1)","Speed","gpu__time_duration.sum","ns","2,500.5"',
    '"0","7","void gemm<float>(float *)","(256, 1, 1)","(4, 2, 1)","Speed","sm__throughput","%","n/a"',
])  # fmt: skip


def test_rocprof_rows_become_one_kernel_per_name_and_grid():
    gemm, reduce, other = parse_counters(ROCPROF)
    assert (gemm.tool, gemm.name, gemm.programs, gemm.dispatches) == ("rocprofv3", "gemm_fused.kd", 112, 2)
    assert gemm.counters["SQ_INSTS_VALU"] == 141120 and gemm.duration_us == 6.0  # median of 7 and 5
    assert (base_name(reduce.name), reduce.programs, base_name(other.name)) == ("reduce_tiles", 16, "Cijk_Ailk")


def test_counters_of_several_hardware_instances_are_summed():
    text = "\n".join([HEADER] + [rocprof_row(1, "k", "SQ_WAVES", "10", agent="1")] * 8)
    assert parse_counters(text)[0].counters["SQ_WAVES"] == 80


def test_hardware_stands_beside_emulation_per_wave():
    rows = {(row.kernel, row.quantity): row for row in beside_emulation(parse_counters(ROCPROF), COUNTS)}
    assert (rows["gemm_fused", "waves"].hardware, rows["gemm_fused", "waves"].expected) == (448, 448)
    valu = rows["gemm_fused", "VALU per wave"]
    assert (valu.hardware, valu.expected, valu.ratio) == (307.0, 307.0, 1.0)  # matrix instructions taken off
    assert rows["gemm_fused", "MFMA per wave"].hardware == 8
    assert rows["gemm_fused", "scalar per wave"].ratio == 1.0
    conflicts = rows["gemm_fused", "LDS conflict cycles per wave"]
    assert (conflicts.hardware, conflicts.expected, conflicts.ratio) == (2.0, None, None)
    assert rows["reduce_tiles", "waves"].ratio == 1.0
    assert not any(kernel == "Cijk_Ailk" for kernel, _ in rows)


def test_a_pass_without_the_wave_counter_is_divided_by_the_plan_s_waves():
    text = "\n".join([HEADER, rocprof_row(1, "gemm_fused", "SQ_INSTS_MFMA", "3584")])
    (row,) = beside_emulation(parse_counters(text), COUNTS)
    assert (row.quantity, row.hardware) == ("MFMA per wave", 8.0)


def test_ncu_s_wide_page_is_read_with_its_units():
    first, second = parse_counters(NCU_RAW)
    assert (first.programs, second.programs, first.dispatches) == (112, 132, 1)
    assert first.counters["dram__bytes_read.sum"] == 8.08e6 and first.duration_us == 10.4
    assert stalls(first) == {"long_scoreboard": 0.65, "wait": 0.54}


def test_ncu_s_long_page_is_read():
    (kernel,) = parse_counters(NCU_DETAILS)
    assert (base_name(kernel.name), kernel.programs, kernel.duration_us) == ("gemm", 8, 2.5005)
    assert kernel.counters["Registers Per Thread"] == 1024 and "sm__throughput" not in kernel.counters


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '"Kernel Name","Other"\n"x","1"\n'])
def test_another_file_is_refused_with_what_was_looked_for(text, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"neither rocprofv3's .* nor ncu's"):
        read_counters(path)
    with pytest.raises(ValueError, match=r"cannot read .*gone.csv"):
        read_counters(tmp_path / "gone.csv")


def test_a_report_of_an_mi355x_profile_counts_the_plan_by_emulation(tmp_path):
    plan = build_plan("fused_preshuffled", None, (4, 2880, 512))
    programs = plan.launches[0].grid[0]
    path = tmp_path / "rocprof.csv"
    path.write_text(
        "\n".join([HEADER, rocprof_row(1, plan.launches[0].name, "SQ_WAVES", programs * 4, grid=programs * 256)])
    )
    found = report(path, plan)
    (waves,) = found.rows
    assert (waves.quantity, waves.ratio, waves.source) == ("waves", 1.0, "emulated")
    assert "emulated" in str(found) and "<table" in found._repr_html_()
    with pytest.raises(ValueError, match="written by rocprofv3, and the plan is for sm_90"):
        report(path, build_plan("hopper", None, (4, 2880, 512), "sm_90"))


def test_the_command_sets_a_profile_beside_the_compiled_kernel(tmp_path, capsys):
    path = tmp_path / "ncu.csv"
    path.write_text(NCU_RAW)
    config = '{"convert": "sw_bits", "block_m": 64, "num_stages": 4, "a_mode": "prequant"}'
    command = ["counters", str(path), "--variant", "hopper", "--shape", "64,7168,2048", "--config", config]
    assert run([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    programs = next(row for row in said["comparison"] if row["quantity"] == "programs")
    assert (said["evidence"], programs["hardware"], programs["expected"]) == ("measured", 112, 112)
    assert run(command) == 0
    assert "long_scoreboard 0.65" in capsys.readouterr().out
    assert run(["counters", str(path), "--variant", "hopper"]) == 2
