"""Folders that pipelines write to.

Knows: which of them it can be.
Does not know: what is written.
"""

from __future__ import annotations

from pathlib import Path

from embedq.errors import InvalidOption


def local(folder: str | Path) -> Path:
    """Return a folder of this machine, absolute. Raises InvalidOption for a URL."""
    if "://" in str(folder):
        raise InvalidOption(
            f"folder={str(folder)!r} is no local path",
            hint="name a local or mounted folder",
            argument="folder",
        )
    return Path(folder).resolve()
