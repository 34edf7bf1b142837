"""What Spark needs and a plain installation lacks, asked for before it is used.

Knows: which packages the extra `embedq[spark]` brings, and the error that names it.
Does not know: what is done with them.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from embedq.errors import MissingExtra

_EXTRA: Final = "pip install 'embedq[spark]' (a download of half a gigabyte, built for minutes)"


def need(*packages: str) -> None:
    """Do nothing if all the packages are installed. Raises MissingExtra naming the others."""
    missing = [name for name in packages if not _is_there(name)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise MissingExtra(
            f"embedq.spark needs {' and '.join(missing)}, which {are} not installed",
            hint=_EXTRA,
            packages=missing,
        )


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return find_spec(name) is not None
