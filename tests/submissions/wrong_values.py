import torch


def custom_kernel(data):
    a, b, *_ = data
    return a @ b.T  # no quantization
