import mxfp4lab


def custom_kernel(data):
    return data[0]
