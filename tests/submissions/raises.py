import torch


def custom_kernel(data):
    a, b, *_ = data
    return torch.mm(a, b)  # inner dimensions do not fit
