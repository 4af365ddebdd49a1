"""Configs as text."""

import json


def serialize_dict(config):
    """A config dict as a string, as aiter's operators take it."""
    return json.dumps(config)


def deserialize_str(text):
    """The inverse of `serialize_dict`."""
    return json.loads(text)
