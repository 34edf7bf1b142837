"""The broker room: who may have which message, and when.

Knows: the ready index, leases, the life cycle; one store underneath.
Does not know: SQL, handlers, processes, sockets.
"""
