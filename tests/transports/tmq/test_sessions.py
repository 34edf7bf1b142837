"""TMQ sessions as real clients and servers held them, in both byte orders."""

import pytest

from embedq_transports.tmq import answers, requests
from embedq_transports.tmq.commands import Command, read_command
from embedq_transports.tmq.frames import PREAMBLE, Content, Frame, Kind, Order
from embedq_transports.tmq.wire import ClientWire, Greeted, LoggedIn, Received, ServerWire


class Talk:
    """One client and its server: what one writes the other reads, and both bytes are checked."""

    def __init__(self, name: bytes, order: Order) -> None:
        self.name, self.order = name, order
        self.client, self.server = ClientWire(order=order), ServerWire()
        hello = requests.hello((("Client-Id", name.decode()),), message_id=b"mid1", source=name)
        greeted, login = self.server.feed(PREAMBLE + self.client.encode(hello))
        assert isinstance(greeted, Greeted)
        assert isinstance(login, LoggedIn)
        assert login.client_id == name
        assert self.client.feed(PREAMBLE) == [Greeted()]

    def swapped(self, text: str) -> bytes:
        """Return the bytes of a capture of little-endian peers, as this client has them."""
        head, _, rest = text.partition(" ")
        data = bytearray.fromhex(head)
        if self.order == "big":
            data[5:7] = data[5:7][::-1]
        return bytes(data) + rest.encode()

    def says(self, frame: Frame, text: str) -> Frame:
        data = self.client.encode(frame)
        assert data == self.swapped(text)
        (event,) = self.server.feed(data)
        assert isinstance(event, Received)
        return answers.admitted(event.frame, self.name)

    def hears(self, frame: Frame | None, text: str) -> Frame:
        assert frame is not None
        data = self.server.encode(frame)
        assert data == self.swapped(text)
        (event,) = self.client.feed(data)
        assert isinstance(event, Received)
        return event.frame


@pytest.mark.parametrize(("one", "other"), [
    ("little", "little"), ("big", "big"), ("little", "big"), ("big", "little"),
])  # fmt: skip
def test_clients_of_either_byte_order_talk_to_each_other(one, other):
    producer, consumer = Talk(b"cli-a", one), Talk(b"cli-b", other)
    producer.hears(answers.accepted(b"cli-a", b"srvmid1"), "9010070005ca0000 srvmid1cli-a")
    join = consumer.says(
        requests.command(Content.JOIN, b"ch-1", message_id=b"mid2", source=b"cli-b"),
        "1090040504590200 mid2cli-bch-1",
    )
    assert read_command(join) == Command(Content.JOIN, b"ch-1")
    consumer.hears(answers.status_for(join, Content.OK), "9410040005c80000 mid2cli-b")

    push = producer.says(
        requests.push(b"ch-1", 101, b"hello", message_id=b"mid5", source=b"cli-a"),
        "1110040504650005 mid5cli-ach-1hello",
    )
    message = consumer.hears(
        answers.delivered(push, first_acquirer=True, acknowledge=True),
        "914f040504650005 mid5cli-ach-1hello",
    )
    done = consumer.says(requests.delivery(message, b"cli-b"), "9310040504650000 mid5cli-bch-1")
    producer.hears(answers.relayed(done), "930f040504650000 mid5cli-bch-1")

    asked = producer.says(
        requests.peer(b"cli-b", 55, b"ask", message_id=b"mid10", source=b"cli-a", response=True),
        "1290050505370003 mid10cli-acli-bask",
    )
    heard = consumer.hears(answers.relayed(asked), "128f050505370003 mid10cli-acli-bask")
    answer = consumer.says(
        requests.response(heard, 777, b"pong!", source=b"cli-b"),
        "1410050505090305 mid10cli-bcli-apong!",
    )
    last = producer.hears(answers.relayed(answer), "140f050505090305 mid10cli-bcli-apong!")
    assert (last.kind, last.payload) == (Kind.RESPONSE, b"pong!")
