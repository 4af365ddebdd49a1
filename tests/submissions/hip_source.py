from torch.utils.cpp_extension import load_inline

module = load_inline(name="gemm", cpp_sources="void f();", cuda_sources="void f() {}", functions=["f"])


def custom_kernel(data):
    return module.f(data)
