"""Imported first by every file that runs the suite: failed assertions then show their values.

Knows: pytest rewrites test files by itself, other modules when they are named before their import.
Does not know: what is asserted.
"""

from pathlib import Path

import pytest

_NAMES = {path.stem for path in Path(__file__).parent.glob("*.py")} - {"assertions"}

pytest.register_assert_rewrite(*(f"tests.conformance.{name}" for name in sorted(_NAMES)))
