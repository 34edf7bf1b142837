"""Run deliveries: consumers on threads and on an event loop, in batches, until they are drained.

Knows: handlers, what their ends mean, how many run at once, how they are stopped.
Does not know: when a message may move, storage, sockets; it asks the broker room.
"""
