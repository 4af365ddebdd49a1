"""The GPU that `check` stands in for: what it does and refuses, operation by operation, in one process.

`submissions/differential/operations.json` says which expressions an NVIDIA H200 took: 155 that mix devices, and 112
operations on 14 dtypes. The forms below are what people do with torch and Triton beside that.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission

FOLDER = Path(__file__).parent / "submissions"
FORMS = {  # what a form in gpu_forms.py ends with: "True", or a part of what is raised
    "compiled_run_with_all_arguments": "True",
    "parameters_named_as_options": "True",
    "tensor_descriptor": "True",
    "addresses_in_a_table": "Refused: a kernel that takes addresses of tensors as numbers is not modelled",
    "float_grid": "TypeError: 'float' object cannot be interpreted as an integer",
    "e8m0_pointer": "KeyError: 'float8_e8m0fnu'",
    "fp4_pointer": "KeyError: 'float4_e2m1fn_x2'",
    "cpu_pointer": "ValueError: Pointer argument cannot be accessed from Triton",
    "four_threads": "True",
    "side_queue": "Refused: a second queue of work is not modelled",
    "default_queue": "True",
    "late_copy_read_at_once": "nan",
    "late_copy_awaited": "True",
    "late_copy_read_by_the_gpu": "True",
    "graph_replays_what_it_captured": "True",
    "graph_does_not_run_at_capture": "True",
    "wait_inside_a_capture": "operation not permitted when stream is capturing",
    "generator_of_the_gpu_on_the_cpu": "Expected a 'cpu' device type for generator but found 'cuda'",
    "pinning_a_gpu_tensor": "cannot pin 'torch.cuda.FloatTensor'",
    "out_of_memory": "OutOfMemoryError",
    "freed_addresses_come_back_as_poison": "True",
    "default_device": "True",
    "storage_offsets": "True",
    "compiled_whole_graph_with_a_print": "Unsupported",
    "memory_snapshot": "Refused: memorySnapshot of torch.cuda is not modelled",
    "memory_peak": "True",
    "sparse": "Refused: a GPU tensor of layout torch.sparse_coo is not modelled",
    "deepcopy": "True",
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    path = tmp_path_factory.mktemp("gpu") / "submission.py"
    table = FOLDER / "differential" / "operations.json"
    path.write_text(f"TABLE = {str(table)!r}\n" + (FOLDER / "gpu_forms.py").read_text())
    report = check_submission(path, "test", "emulator", ["8,64,256"], log=case_lines.Log(), time_limit_s=100)
    lines = [line.split(" ", 1)[1] for line in report.printed.splitlines() if line.startswith("SAID ")]
    found = dict(map(json.loads, lines))
    assert "dtypes" in found, report.summary() + report.printed
    return found


@pytest.mark.parametrize("form", FORMS)
def test_form(form: str, printed: dict[str, object]) -> None:
    assert FORMS[form] in printed[form]


def test_operations_that_mix_devices_are_taken_and_refused_as_on_the_gpu(printed: dict[str, object]) -> None:
    assert printed["mixed"] == []


def test_operations_take_the_dtypes_that_the_gpu_takes(printed: dict[str, object]) -> None:
    assert printed["dtypes"] == []
