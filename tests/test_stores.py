"""Every store keeps the contract that `diarist.testing` ships."""

from pathlib import Path

import pytest

from diarist.stores import Store
from diarist.stores.folder import FolderStore
from diarist.testing import StoreContract


class TestFolderStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FolderStore(tmp_path / "memory", busy_timeout=5)
