import a_package_that_does_not_exist


def custom_kernel(data):
    return data[0]
