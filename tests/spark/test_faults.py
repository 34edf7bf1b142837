"""What goes wrong beside Spark: hosts, groups and keys, attempts of one task. Without a session.

With it: test_source_kills.py, test_sink_kill.py, test_sink_host.py, test_cluster.py.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq.errors import KeyRefused, MessagesGone
from tests.app.test_takeover import Hosts
from tests.spark.direct import bodies, seqs, stream_of, writer_of

pytestmark = pytest.mark.spark  # PySpark is needed, but no JVM


def test_a_stream_goes_on_with_the_host_that_comes_after_the_one_that_was_killed(tmp_path):
    from pyspark.sql.streaming.datasource import ReadMaxRows

    with ExitStack() as stack:
        hosts = Hosts(tmp_path / "app.db", stack)
        first = hosts.start()
        with Broker(hosts.path, role="client") as broker:
            broker.queue("orders", bytes).put_many([b"x"] * 30)
            options = {"endpoint": str(hosts.path), "subscribe": "orders", "group": "lake"}
            reader = stream_of({**options, "minPartitions": "2"})
            offset = reader.initialOffset()
            middle = reader.latestOffset(offset, ReadMaxRows(10))
            planned = reader.partitions(offset, middle)
            hosts.end(first)
            hosts.start()
            assert seqs(reader, planned) == list(range(1, 11))
            reader.commit(middle)
            end = reader.latestOffset(middle, reader.getDefaultReadLimit())
            assert seqs(reader, reader.partitions(middle, end)) == list(range(11, 31))
            assert broker.queue("orders").group("lake").stats().waiting == 20


def test_a_group_that_is_removed_under_a_running_stream_ends_it(tmp_path):
    with Broker(tmp_path / "q.db") as broker:
        queue = broker.queue("orders", bytes)
        queue.put_many([b"x"] * 10)
        options = {"endpoint": str(tmp_path / "q.db"), "subscribe": "orders", "group": "lake"}
        reader = stream_of(options)
        offset = reader.initialOffset()
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        planned = reader.partitions(offset, end)
        queue.group("lake").remove()
        with pytest.raises(MessagesGone, match="was removed, and what it held may be gone"):
            seqs(reader, planned)
        with pytest.raises(MessagesGone, match="group 'lake' of 'orders' was removed"):
            reader.latestOffset(end, reader.getDefaultReadLimit())
        # Nor does it go on when it is started again, with its checkpoint.
        with pytest.raises(MessagesGone, match=r"removed(.*\n)+.*failOnDataLoss=false goes on"):
            stream_of(options).latestOffset(end, reader.getDefaultReadLimit())
        queue.put(b"y")
        lenient = stream_of({**options, "failOnDataLoss": "false"})
        beyond = lenient.latestOffset(end, lenient.getDefaultReadLimit())
        assert seqs(lenient, lenient.partitions(end, beyond)) == [11]
        # What retain= keeps is there without a group.
        broker.queue("orders", bytes, retain="1d").group("lake").remove()
        late = stream_of(options)
        assert late.latestOffset(end, late.getDefaultReadLimit()) == beyond


def test_of_two_attempts_of_a_task_at_once_the_rows_of_one_count(tmp_path):
    with Broker(tmp_path / "q.db") as broker:
        queue = broker.queue("orders", bytes)
        queue.put(b"before")
        options = {"endpoint": str(tmp_path / "q.db"), "queue": "orders", "sinkId": "s"}
        first = writer_of({**options, "batchId": "0"})
        slow = first.write(bodies(b"a", b"b"))
        quick = first.write(bodies(b"a", b"b"))  # Spark has started the same task elsewhere
        other = first.write(bodies(b"c"))
        first.commit([quick, other])
        assert [message.body for message in queue.peek(9)] == [b"before", b"a", b"b", b"c"]
        with pytest.raises(Exception, match="has published batch 0 with 3 messages"):
            first.commit([slow])
        assert slow != quick
        first.write(bodies(b"a", b"b"))  # an attempt that nobody has told of the end
        second = writer_of({**options, "batchId": "1"})
        second.commit([second.write(bodies(b"d")), None])
        assert [message.body for message in queue.peek(9)][4:] == [b"d"]
        assert broker.desk.store.staged() == []  # type: ignore[attr-defined]


def test_a_wrong_key_is_refused_once_at_the_source_and_at_the_sink(tmp_path):
    from embedq.ipc import keys
    from tests.ipc.abroad import free_port, make_keys

    folder = make_keys(tmp_path / "keys", "executors")
    keys.new_pair(folder, "stranger")
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with Broker(tmp_path / "q.db", endpoint=endpoint, keys=folder, role="host") as broker:
        broker.queue("orders", bytes).put(b"x")
        options = {"endpoint": endpoint, "keys": str(folder / "stranger.secret")}
        told = "does not allow the key.*\n.*set `keys` to another"
        with pytest.raises(KeyRefused, match=told):
            stream_of({**options, "subscribe": "orders"}).initialOffset()
        with pytest.raises(KeyRefused, match=told):
            writer_of({**options, "queue": "orders"}).write(bodies(b"y"))
        right = {**options, "keys": str(folder / "executors.secret")}
        writer = writer_of({**right, "queue": "orders"})
        writer.commit([writer.write(bodies(b"z"))])
        assert [message.body for message in broker.queue("orders").peek(9)] == [b"x", b"z"]
