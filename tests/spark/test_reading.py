"""The options of the source: each is read, and a wrong one is named with the right value."""

from __future__ import annotations

import pytest

from embedq import InvalidOption
from embedq.lifecycle import Outcome
from embedq.spark.reading import ROWS_PER_PARTITION, parse

LEAST = {"path": "q.db", "subscribe": "orders"}


def test_the_least_there_is_reads_all_messages_of_a_queue():
    reading = parse(LEAST)
    assert (reading.names, reading.feed, reading.start, reading.end) == (
        ("orders",),
        "messages",
        None,
        None,
    )
    assert (reading.per_partition, reading.min_partitions) == (ROWS_PER_PARTITION, 1)
    assert reading.fails_on_loss
    assert reading.chooses("orders")
    assert not reading.chooses("Orders")


def test_names_of_options_count_without_case_and_those_of_the_sink_are_let_pass():
    reading = parse({"PATH": "q.db", "Subscribe": "a, b,a", "sinkId": "s", "queue": "x"})
    assert reading.names == ("a", "b")


def test_words_and_offsets_say_where_to_start_and_to_end():
    assert parse({**LEAST, "startingOffsets": "Latest"}).start == "latest"
    assert parse({**LEAST, "startingOffsets": '{"v": 1, "seq": 7}'}).start == 7
    assert parse({**LEAST, "endingOffsets": "latest"}).end is None
    assert parse({**LEAST, "endingOffsets": '{"seq": 7}'}).end == 7


def test_a_group_goes_with_a_host_and_has_a_duration():
    reading = parse(
        {
            "endpoint": "tcp://h:1",
            "subscribePattern": "o.*",
            "group": "g",
            "maxHold": "2d",
            "startingOffsets": "committed",
        }
    )
    assert (reading.group, reading.max_hold_s, reading.start) == ("g", 172_800.0, "committed")
    assert reading.chooses("orders")
    assert not reading.chooses("no")


def test_states_are_outcomes_of_the_history_and_reasons_of_dead_letters():
    states = parse({**LEAST, "include": "history", "states": "acked, dead"}).states
    assert states == (Outcome.ACKED, Outcome.DEAD)
    assert parse({**LEAST, "include": "dead", "states": "expired"}).states == ("expired",)


@pytest.mark.parametrize(
    ("options", "argument", "told"),
    [
        ({"subscribe": "a"}, "endpoint", "neither endpoint nor path"),
        ({"path": "q.db"}, "subscribe", "neither subscribe nor subscribePattern"),
        ({**LEAST, "subscribePattern": "a"}, "subscribe", "exclude each other"),
        ({"path": "q.db", "subscribePattern": "("}, "subscribePattern", "is no pattern"),
        ({"path": "q.db", "subscribe": "a,,b"}, "subscribe", "cannot be read"),
        ({**LEAST, "include": "all"}, "include", "none of messages, history, dead"),
        ({**LEAST, "startingOffsets": "first"}, "startingOffsets", 'write {"seq": 1234}'),
        ({**LEAST, "startingOffsets": '{"v": 2, "seq": 1}'}, "startingOffsets", "no offset"),
        ({**LEAST, "startingOffsets": "committed"}, "startingOffsets", "option `group`"),
        ({**LEAST, "endingOffsets": '{"seq": -1}'}, "endingOffsets", "no offset"),
        ({**LEAST, "startingTimestamp": "today"}, "startingTimestamp", "whole number"),
        ({**LEAST, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "whole number from 1"),
        ({**LEAST, "minPartitions": "²"}, "minPartitions", "whole number"),
        ({**LEAST, "maxRecordsPerPartition": "1e3"}, "maxRecordsPerPartition", "whole number"),
        ({**LEAST, "failOnDataLoss": "yes"}, "failOnDataLoss", "none of true, false"),
        ({**LEAST, "group": "g"}, "group", "needs the option `endpoint`"),
        ({**LEAST, "endpoint": "x", "group": "\n"}, "group", "cannot be read"),
        ({**LEAST, "maxHold": "long"}, "maxHold", "cannot be read"),
        ({**LEAST, "states": "acked"}, "states", "only for include"),
        ({**LEAST, "include": "dead", "states": "acked"}, "states", "none of max_attempts"),
        ({**LEAST, "subsribe": "a"}, "subsribe", "did you mean `subscribe`"),
        ({**LEAST, "zzz": "a"}, "zzz", "leave it out"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_should_be(options, argument, told):
    with pytest.raises(InvalidOption) as caught:
        parse(options)
    assert caught.value.details["argument"] == argument
    assert told in str(caught.value)
