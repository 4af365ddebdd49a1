"""The architecture."""


def get_arch():
    """The emulated one."""
    return "gfx950"


get_device = get_arch


def get_num_xcds():
    """XCDs of an MI355X."""
    return 8
