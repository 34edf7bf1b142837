"""What the listeners of one protocol share in a broker."""

from __future__ import annotations

from tests.net.lines import LinesTransport


def test_the_listeners_of_a_protocol_share_what_the_first_has_made(broker):
    made: list[object] = []
    seen: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    class Sharing(LinesTransport):
        def open(self, site):
            seen.append(site.share(make))
            return super().open(site)

    for _ in range(2):
        broker.listen("lines://127.0.0.1:0", transport=Sharing())
    assert len(made) == 1
    assert seen == made * 2
