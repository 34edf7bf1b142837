"""A durable message queue inside a Python process.

Knows: the public names and the version.
Does not know: how any of them works.
"""

__version__ = "0.1.0"
