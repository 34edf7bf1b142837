"""The network protocols that embedq speaks, one package each.

Knows: which protocols exist; none in this version.
Does not know: queues, storage, or how a listener is run.
"""
