"""Marks the wheel as one for the platform whose binary is in it."""

import platform
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformWheel(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel with a binary and without code for one version of Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not (Path(self.root) / "src/semel_server/semel").exists():
            raise FileNotFoundError("put the server's binary at src/semel_server/semel first: scripts/pack-clients does")
        name, libc = platform.libc_ver()
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if name == "glibc":
            machine = machine.replace("linux", f"manylinux_{libc.replace('.', '_')}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{machine}"
