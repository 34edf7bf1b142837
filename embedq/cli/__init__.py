"""The command line: `embedq`, also as `python -m embedq`.

Knows: where to begin.
Does not know: the commands (program.py names them); nothing is loaded before one is asked for.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command in sys.argv and end the process with its exit code (docs/cli.md)."""
    from embedq.cli.logs import show_warnings  # noqa: PLC0415  # click only for those who use it
    from embedq.cli.program import program, wants_json  # noqa: PLC0415  # as above
    from embedq.cli.stopping import stop_at_sigterm  # noqa: PLC0415  # as above

    show_warnings(as_json=wants_json(sys.argv[1:]))
    with stop_at_sigterm():
        program(prog_name="embedq")
