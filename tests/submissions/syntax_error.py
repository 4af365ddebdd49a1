import torch


def custom_kernel(data):
    return torch.empty(3
