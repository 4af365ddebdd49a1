"""What runs in the process of a submission.

These files are copied into a scratch folder and started there by `harness.session`: nothing in them may import
mxfp4lab, because a submission must not be able to either. `link` alone is shared by both sides.
"""
