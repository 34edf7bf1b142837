"""The network protocols that embedq speaks, one package each.

Knows: which protocols exist; none can be served in this version, of four there is the wire.
Does not know: queues, storage, or how a listener is run.
"""
