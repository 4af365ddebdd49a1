import torch


def kernel(data):
    return torch.zeros(1)
