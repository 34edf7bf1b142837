"""`python -m embedq`: the same as the command `embedq`.

Knows: that it is a program when run and nothing when imported.
Does not know: any command.
"""

from embedq.cli import main

if __name__ == "__main__":
    main()
