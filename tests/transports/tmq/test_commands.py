"""TMQ commands: what Server frames ask for, option lines in and out."""

import pytest
from hypothesis import given, strategies as st

from embedq_transports.tmq import requests
from embedq_transports.tmq.commands import (
    Command,
    QueueOptions,
    QueueStatus,
    Unreadable,
    encode_options,
    read_command,
    read_options,
)
from embedq_transports.tmq.frames import Content, Frame, Kind
from tests.transports.tmq.vectors import BY_NAME


def asked(content, payload=b""):
    return read_command(Frame(Kind.SERVER, content, target=b"ch-1", payload=payload))


@pytest.mark.parametrize(("name", "expected"), [
    ("V14", Command(Content.JOIN, b"ch-1")),
    ("V15", Command(Content.JOIN, b"ch-1")),
    ("V16", Command(Content.LEAVE, b"ch-1")),
    ("V17", Command(Content.CREATE_QUEUE, b"ch-1", 257)),
])  # fmt: skip
def test_vectors_are_commands(name, expected):
    assert read_command(BY_NAME[name].frame) == expected


def test_two_bytes_are_a_little_endian_id_in_queue_commands_only():
    for content in (Content.CREATE_QUEUE, Content.REMOVE_QUEUE, Content.UPDATE_QUEUE):
        assert asked(content, b"\x2c\x01") == Command(content, b"ch-1", 300)
    assert asked(Content.CREATE_CHANNEL, b"\x2c\x01") == Command(Content.CREATE_CHANNEL, b"ch-1")
    assert asked(Content.REMOVE_CHANNEL, b"\x2c\x01") == Command(Content.REMOVE_CHANNEL, b"ch-1")


def test_an_empty_payload_names_the_queue_of_content_type_0():
    assert asked(Content.CREATE_QUEUE) == Command(Content.CREATE_QUEUE, b"ch-1", 0)
    assert asked(Content.CREATE_CHANNEL) == Command(Content.CREATE_CHANNEL, b"ch-1", None)


def test_options_name_the_queue_and_are_kept():
    found = asked(Content.CREATE_QUEUE, b"Content-Type: 12\r\nQueue-Status: rr\r\n")
    options = QueueOptions(content_type=12, queue_status=QueueStatus.ROUND_ROBIN)
    assert found == Command(Content.CREATE_QUEUE, b"ch-1", 12, options)


@pytest.mark.parametrize("content", [0, 101, 200, 605, 606, 607, 615, 616, 621, 631, 999, 65535])
def test_anything_else_is_answered_404(content):
    found = asked(content)
    assert isinstance(found, Unreadable)
    assert found.status == Content.NOT_FOUND


@pytest.mark.parametrize(("line", "expected"), [
    ("only-first-acquirer:1", QueueOptions(only_first_acquirer=True)),
    ("Request-Acknowledge: TRUE", QueueOptions(request_acknowledge=True)),
    ("Acknowledge-Timeout: 1500", QueueOptions(acknowledge_timeout=1500)),
    ("Message-Timeout: 0", QueueOptions(message_timeout=0)),
    ("Use-Message-Id: false", QueueOptions(use_message_id=False)),
    ("Wait-For-Acknowledge: 0", QueueOptions(wait_for_acknowledge=False)),
    ("Hide-Client-Names: 1", QueueOptions(hide_client_names=True)),
    ("Allow-Multiple-Queues: 0", QueueOptions(allow_multiple_queues=False)),
    ("Allowed-Queues: 1, 2,65535", QueueOptions(allowed_queues=(1, 2, 65535))),
    ("Allowed-Queues:", QueueOptions(allowed_queues=())),
    ("Destroy-When-Empty: 1", QueueOptions(destroy_when_empty=True)),
    ("Client-Limit: 5\nQueue-Limit: 6", QueueOptions(client_limit=5, queue_limit=6)),
    ("Message-Limit: 5\r\nMessage-Limit: 7", QueueOptions(message_limit=7)),
    ("Message-Size-Limit: 9", QueueOptions(message_size_limit=9)),
    ("Message-Delivery-Handler: h", QueueOptions(message_delivery_handler="h")),
    ("Channel-Authenticator: a", QueueOptions(channel_authenticator="a")),
    ("Queue-Status: Round-Robin", QueueOptions(queue_status=QueueStatus.ROUND_ROBIN)),
    ("Queue-Status: paused", QueueOptions(queue_status=QueueStatus.PAUSED)),
    ("Queue-Status: stopped", QueueOptions(queue_status=QueueStatus.STOPPED)),
    ("no colon\n\nOwn: x", QueueOptions(others=(("own", "x"),))),
])  # fmt: skip
def test_an_option_line_is_read(line, expected):
    assert read_options(line.encode()) == expected


@pytest.mark.parametrize("line", [
    "Acknowledge-Timeout: -1", "Message-Timeout: soon", "Client-Limit: 99999999999",
    "Content-Type: 65536", "Allowed-Queues: 1,x", "Use-Message-Id: yes", "Queue-Status: cache",
    "Message-Limit: ٣", "Queue-Limit:", "Content-Type: " + "9" * 5_000,
])  # fmt: skip
def test_a_value_that_an_option_cannot_have_is_answered_400(line):
    found = asked(Content.CREATE_QUEUE, line.encode())
    assert isinstance(found, Unreadable)
    assert found.status == Content.BAD_REQUEST
    assert line.partition(":")[0] in found.text
    assert len(found.text) < 100


WHOLE = st.none() | st.integers(0, 9_999_999_999)
FLAG = st.none() | st.booleans()
WORD = st.none() | st.text("abcXYZ09.-", max_size=8)
OPTIONS = st.builds(
    QueueOptions,
    content_type=st.none() | st.integers(0, 65535),
    only_first_acquirer=FLAG,
    acknowledge_timeout=WHOLE,
    message_size_limit=WHOLE,
    queue_status=st.none() | st.sampled_from(QueueStatus),
    allowed_queues=st.none() | st.lists(st.integers(0, 65535), max_size=4).map(tuple),
    destroy_when_empty=FLAG,
    channel_event_handler=WORD,
    others=st.sampled_from([(), (("own", "1"),)]),
)


@given(OPTIONS)
def test_options_are_read_as_they_were_written(options):
    assert read_options(encode_options(options)) == options


@given(st.binary(max_size=60))
def test_any_payload_is_a_command_or_unreadable(payload):
    found = asked(Content.UPDATE_QUEUE, b"Queue-Limit: " + payload)
    assert isinstance(found, (Command, Unreadable))


def test_a_queue_payload_has_either_form():
    assert requests.queue_payload(300) == b"\x2c\x01"
    assert requests.queue_payload(QueueOptions(content_type=3)) == b"Content-Type: 3\r\n"
