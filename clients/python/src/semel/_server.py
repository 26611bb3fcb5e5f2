"""The server's binary, and the command ``semel``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def binary() -> str:
    """The binary: that of ``SEMEL_BIN``, of the package semel-server, or in the path."""
    named = os.environ.get("SEMEL_BIN")
    if named:
        return named
    package = importlib.util.find_spec("semel_server")
    if package is not None and package.origin is not None:
        return str(Path(package.origin).with_name("semel"))
    # The command of this package is a script beside the interpreter, and not the server.
    others = [folder for folder in os.get_exec_path() if Path(folder).resolve() != Path(sys.argv[0]).resolve().parent]
    found = shutil.which("semel", path=os.pathsep.join(others))
    if found is None:
        raise FileNotFoundError("the server is not here: install semel[server]; if there is none for this platform, build it with cargo and set SEMEL_BIN to it")
    return found


def main() -> None:
    """Becomes the server's binary."""
    try:
        path = binary()
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as missing:
        sys.exit(f"semel: {missing}")
