"""TMQ 1.0: channels, queues and peers in frames of at least eight bytes.

Knows: which files speak it: `wire` reads, `answers` and `requests` build, `frames` is the layout.
Does not know: sessions and listeners; the transport itself comes with them.
"""
