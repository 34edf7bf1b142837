"""The conformance suite of the store port: every Store runs all of it.

A store's test file needs a subclass of `StoreSuite` with one fixture:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def stores(self, tmp_path):
            return MyStores(tmp_path)        # make_store() and reopen(store, clean=...)

Knows: the themes, each a file of its own.
Does not know: any store, nor which of them is right; the port says that.
"""

from __future__ import annotations

from tests.conformance.atomicity import Atomicity
from tests.conformance.counts import Counts
from tests.conformance.dead_letters import DeadLetters
from tests.conformance.dedup import Dedup
from tests.conformance.deliveries import Deliveries
from tests.conformance.groups import Groups
from tests.conformance.loading import Loading
from tests.conformance.positions import Positions
from tests.conformance.puts import Puts
from tests.conformance.reopening import Reopening
from tests.conformance.retention import Retention
from tests.conformance.sessions import Sessions
from tests.conformance.settlement import Settlement
from tests.conformance.staging import Staging
from tests.conformance.tails import Tails

THEMES = (
    Puts,
    Dedup,
    Deliveries,
    Settlement,
    Groups,
    Retention,
    DeadLetters,
    Loading,
    Counts,
    Reopening,
    Sessions,
    Tails,
    Positions,
    Staging,
    Atomicity,
)


class StoreSuite(
    Puts,
    Dedup,
    Deliveries,
    Settlement,
    Groups,
    Retention,
    DeadLetters,
    Loading,
    Counts,
    Reopening,
    Sessions,
    Tails,
    Positions,
    Staging,
    Atomicity,
):
    """All themes in one class."""
