"""Files that are dropped into a folder become messages, each content once, across restarts."""

import logging
import tempfile
import threading
from pathlib import Path

from embedq import Broker, WatchedFile

logging.getLogger("embedq").setLevel(logging.ERROR)
home = Path(tempfile.mkdtemp()).resolve()
inbox = home / "inbox"
inbox.mkdir()
finished = threading.Semaphore(0)


def new_broker() -> Broker:
    """Make a broker as a program does when it starts."""
    broker = Broker(home / "files.db")
    files = broker.queue("files", WatchedFile)
    files.watch_folder(inbox, "*.csv", settle="100ms")

    @files.consumer
    def count(file: WatchedFile) -> None:
        """Count the lines of a file."""
        lines = Path(file.path).read_text().count("\n")
        print(f"  {Path(file.path).name}: {lines} lines, {file.size} bytes")
        finished.release()

    return broker


(inbox / "monday.csv").write_text("a;1\nb;2\n")
print("first run:")
with new_broker():
    finished.acquire(timeout=20)  # what was there before
    (inbox / "tuesday.csv").write_text("c;3\n")
    finished.acquire(timeout=20)
    (inbox / "notes.txt").write_text("another pattern\n")

(inbox / "monday.csv").write_text("a;1\nb;2\nc;3\n")  # nobody is watching now
print("second run:")
with new_broker():
    finished.acquire(timeout=20)
    (inbox / "tuesday.csv").touch()  # the same content: no message
    if finished.acquire(timeout=0.5):
        raise SystemExit("a file came twice")
