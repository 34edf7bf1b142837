"""The store in a SQLite file passes the suite that every store runs."""

from pathlib import Path

import pytest

import tests.conformance.assertions  # noqa: F401  # before what it names
from embedq.storage.port import Store
from embedq.storage.sqlite import SqliteStore, open_store
from tests.conformance.store_suite import StoreSuite


class SqliteStores:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"

    def make_store(self) -> SqliteStore:
        return open_store(self._path, durability="full")

    def reopen(self, store: Store, *, clean: bool) -> SqliteStore:
        store.close(clean=clean)
        return self.make_store()


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> SqliteStores:
        return SqliteStores(tmp_path)
