"""The Semel server as a binary for this platform."""

import os
import sys
from pathlib import Path

#: The binary.
BINARY = Path(__file__).parent / "semel"


def main() -> None:
    """Becomes the server's binary."""
    os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
