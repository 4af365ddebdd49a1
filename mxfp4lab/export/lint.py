from mxfp4lab.export.spelling import server_refusals  # noqa

lint_source = server_refusals
