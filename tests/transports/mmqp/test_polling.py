"""What a poll holds while it looks for messages."""

from __future__ import annotations

from embedq_transports.mmqp.polling import Polling
from tests.interop.mmqp_client import Reader


def test_what_a_poll_passes_over_is_held_without_its_content(orders, address, monkeypatch):
    held: list[tuple[int, int]] = []
    end = Polling._end

    def noted(polling, result):
        held.append((len(polling._passed), sum(len(each.body) for each in polling._passed)))
        end(polling, result)

    monkeypatch.setattr(Polling, "_end", noted)
    for number in range(300):
        orders.put(f"{number:04}" * 250, headers={"n": str(number)})
    orders.put("mine", ordering_key="g")
    assert [each.body for each in Reader(address).poll("orders", "g")] == ["mine"]
    assert held == [(300, 0)]
    got = orders.get_many(300, timeout=60)
    assert [each.body for each in got] == [f"{number:04}" * 250 for number in range(300)]
    assert [each.headers["n"] for each in got] == [str(number) for number in range(300)]
