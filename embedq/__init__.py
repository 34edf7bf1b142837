"""embedq: a durable message queue inside a Python process.

Knows: what is public.
Does not know: how anything works; importing this loads neither sqlite3 nor zmq.
"""

__version__ = "0.1.0"
