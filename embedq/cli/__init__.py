"""The command line: `embedq`, also as `python -m embedq`.

Knows: where to begin.
Does not know: the commands (program.py names them); nothing is loaded before one is asked for.
"""

from __future__ import annotations


def main() -> None:
    """Run the command in sys.argv and end the process with its exit code (docs/cli.md)."""
    from embedq.cli.program import program  # noqa: PLC0415  # click only for those who use it
    from embedq.cli.stopping import stop_at_sigterm  # noqa: PLC0415  # as above

    with stop_at_sigterm():
        program(prog_name="embedq")
