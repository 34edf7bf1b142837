"""Hosts that die, without a process that does.

Knows: what a killed host leaves in the lock file and beside the database.
Does not know: what the next one makes of it.
"""

import json
from pathlib import Path

from embedq.storage.lastwords import KEPT

CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f126dab76c0 (most recent call first):
  File "/a/shop.py", line 14 in token_4711
  File "/a/shop.py", line 20 in run
"""
FRAMES = '  File "/a/shop.py", line 20 in run\n  File "/a/shop.py", line 14 in token_4711\n'


def leave(path: Path, *, words: str = KEPT, crash: str = "", boot: str | None = None) -> None:
    """Let a store that was just closed without being clean look as after a kill."""
    lock = path.with_name(f"{path.name}.lock")
    record = json.loads(lock.read_text())
    record["words"] = words
    record["boot_id"] = boot or record["boot_id"]
    lock.write_text(json.dumps(record) + "\n")
    if words == KEPT:
        head = f"embedq last words, epoch {record['epoch']}, process {record['pid']}\n"
        file = path.with_name(f"{path.name}.fatal")
        file.write_text(head + crash)
        file.chmod(0o600)
