"""What every salvage must be, whatever was damaged: shared by the salvage tests."""

from pathlib import Path

from embedq.storage.inspect import check
from embedq.storage.salvage import salvage
from tests.storage.sample_store import Sample, contents

TABLES = ("meta", "consumer_group", "msg", "delivery", "dead", "dedup", "session")


class Salvage:
    """One salvage of a damaged copy of a sample, in a folder of its own."""

    def __init__(self, folder: Path, base: Sample, data=None, wal=None, tool=salvage) -> None:
        self.base = base
        self.source = base.write(folder / "old.db", data, wal)
        self.target = folder / "new.db"
        before = [(path, path.read_bytes()) for path in sorted(folder.iterdir())]
        self.result = tool(self.source, self.target)
        after = [(path, path.read_bytes()) for path in sorted(folder.iterdir())]
        assert [entry for entry in after if entry[0] != self.target] == before
        self.rows = contents(self.target)

    @property
    def messages(self):
        return {row[0]: row for row in self.rows["msg"]}

    @property
    def letters(self):
        """The dead letters that the salvage made."""
        return [row for row in self.rows["dead"] if row[5] == "corrupt" and row[7] == "salvage"]

    def examine(self, hit: set[int], *, back: bool = False) -> None:
        """Check the promises of a salvage of a file in which the pages `hit` are damaged.

        `back`: messages that had been acked may be there again.
        """
        there, places = self.base.messages(), self.base.places["msg"]
        for seq, row in self.messages.items():
            if row[10:] != self.base.ever.get(seq):
                self.examine_swap(seq, row, hit)
            elif seq not in there:
                assert back, f"message {seq} had been acked"
            elif not places[seq] & hit:
                assert row == there[seq]
        missing = there.keys() - self.messages.keys()
        for seq in missing:
            assert places[seq] & hit, f"message {seq} is lost, though its pages are good"
        unsaid = [seq for seq in missing if not self.is_said_to_be_lost(seq)]
        said = len(self.letters) + 100 * self.result.lost_frames
        assert len(unsaid) <= said, f"nothing is said about {unsaid}"
        report = check(self.target)
        assert report.sound, report.findings

    def examine_swap(self, seq, row, hit):
        """Check that a message with another content only has the damaged number of another one.

        Two pages then claim one number. Nobody can say which is right, so the one found last is
        a dead letter.
        """
        owner = [one for one, content in self.base.ever.items() if content == row[10:]]
        assert owner, f"message {seq} has another content"
        assert self.base.places["msg"].get(owner[0], hit) & hit, f"message {seq} took a number"
        if seq in self.base.messages():
            assert self.base.ever[seq][1] in [letter[16] for letter in self.letters]

    def is_said_to_be_lost(self, seq):
        return any(
            lost.first <= seq <= lost.last for lost in self.result.lost if lost.table == "msg"
        )


def page_of(base: Sample, name: str) -> int:
    return base.roots[name]


def trunks(base: Sample) -> set[int]:
    """Return the pages that list free pages."""
    first = int.from_bytes(base.data[32:36], "big")
    found = set()
    while first:
        found.add(first)
        start = (first - 1) * base.page_size
        first = int.from_bytes(base.data[start : start + 4], "big")
    return found


def may_come_back(base: Sample, hit: set[int]) -> bool:
    """Whether both records of free pages are damaged, so that old pages may count again."""
    maps = {page for page in hit if base.pages.is_map(page)}
    return bool(maps) and bool(hit & (trunks(base) | {1}))


def same_tables(salvaged, names):
    for name in names:
        assert salvaged.rows[name] == salvaged.base.rows[name], name


def flip(data, at, bit=1):
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
