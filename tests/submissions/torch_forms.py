"""Ways in which submissions make, move and ask tensors: all of them are on the GPU, or say where they are."""
import threading

import torch
from reference import ref_kernel

torch.set_default_device("cuda")
TABLE = torch.arange(4)
torch.set_default_device("cpu")
HALF = torch.tensor([0.5], device="cuda:0")
ON_HOST = torch.zeros(3)
assert TABLE.is_cuda and HALF.device == torch.device("cuda", 0) and not ON_HOST.is_cuda
assert torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx950")
assert torch.cuda.get_device_name() and torch.version.hip and torch.cuda.device_count() == 1


@torch.compile
def doubled(x):
    return x + x


def custom_kernel(data):
    c = ref_kernel(data)
    view = c.view(-1)[3:].reshape(-1, 1).t()
    assert view.is_cuda and (c.float() * HALF).is_cuda and torch.empty_like(c).is_cuda
    assert not c.cpu().is_cuda and c.cpu().cuda().is_cuda and ON_HOST.to("cuda").is_cuda
    assert c.to(torch.float32).is_cuda and c.to("cpu", torch.float32).device.type == "cpu"
    assert c.new_zeros(3).is_cuda and torch.stack([c, c]).is_cuda and torch.randn(2, device=c.device).is_cuda
    assert (c.to("cuda") is c) and c.cuda().data_ptr() == c.data_ptr()
    try:
        c.numpy()
        raise AssertionError("numpy of a GPU tensor")
    except TypeError:
        pass
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.rand(2, device="cuda", generator=generator).is_cuda
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.empty(1, device="cuda").is_cuda))
    thread.start()
    thread.join()
    assert seen == [True]
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    half = (c.float() * HALF).to(torch.bfloat16)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    out = torch.empty(c.shape, dtype=c.dtype, device="cuda", pin_memory=False)
    assert bool(out.isnan().all()), "memory that nobody wrote holds no useful numbers"
    out.copy_(doubled(half))
    return out
