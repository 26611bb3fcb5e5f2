"""The Semel server as a binary for this platform."""

from pathlib import Path

#: The binary.
BINARY = Path(__file__).parent / "semel"
