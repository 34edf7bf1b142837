"""Install the first generation of the client of zbus into a folder of its own, and print which.

Knows: its version and where it goes: into the environment that runs this.
Does not know: what runs it. The second generation has the same name and is a package of the
environment; tests/interop/test_zbus_clients.py takes the folder from EMBEDQ_ZBUSPY.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CLIENT = "zbuspy==1.0.20"
FOLDER = Path(sys.prefix) / CLIENT.replace("==", "-")


def main() -> int:
    """Install it unless it is there: whole, or not at all."""
    if not FOLDER.exists():
        with TemporaryDirectory(dir=sys.prefix) as folder:
            made = Path(folder) / "made"
            # It needs websocket-client, which the environment has.
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            done = subprocess.run(
                [*pip, "--target", str(made), CLIENT], stdout=sys.stderr, check=False
            )
            if done.returncode:
                return done.returncode
            made.rename(FOLDER)
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
