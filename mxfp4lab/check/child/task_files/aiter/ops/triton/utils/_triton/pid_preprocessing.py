"""Program order."""

import triton
import triton.language as tl


@triton.jit
def remap_xcd(pid, GRID_MN, NUM_XCDS: tl.constexpr = 8):
    """Renumber programs so that those of one XCD are neighbours; the first GRID_MN % NUM_XCDS XCDs have one more."""
    longer = GRID_MN % NUM_XCDS
    xcd = pid % NUM_XCDS
    return xcd * (GRID_MN // NUM_XCDS) + tl.minimum(xcd, longer) + pid // NUM_XCDS


@triton.jit
def pid_grid(pid, num_pid_m, num_pid_n, GROUP_SIZE_M: tl.constexpr = 1):
    """Tile (row, column) of a program, columns of GROUP_SIZE_M row tiles after one another."""
    if GROUP_SIZE_M == 1:
        return pid // num_pid_n, pid % num_pid_n
    per_group = GROUP_SIZE_M * num_pid_n
    first = (pid // per_group) * GROUP_SIZE_M
    rows = tl.minimum(num_pid_m - first, GROUP_SIZE_M)
    return first + (pid % per_group) % rows, (pid % per_group) // rows
