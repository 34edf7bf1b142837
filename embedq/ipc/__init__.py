"""Between processes: one host serves the others of its machine over ZeroMQ.

Knows: frames, sockets, sessions; the host's end (server) and the client's end (link, remote).
Does not know: applications, handlers, how messages are stored.
"""
