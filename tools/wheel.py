"""What makes the wheel more than Python: the native module, the command, and what jobs load, as `make install` has it.

They are one cargo build, which does nothing if it was done before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

PYTHON = "cp311"
"""The oldest Python whose stable ABI has what the native module needs: buffers."""


def platform() -> str:
    """This host's, by the C library that things are linked with: `manylinux_2_36_x86_64` (PEP 600)."""
    return next((tag for tag in platform_tags() if tag.startswith("manylinux")), next(platform_tags()))


class CustomBuildHook(BuildHookInterface):
    """Adds to the wheel what cargo builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds it, and says where in the wheel it goes."""
        root = Path(self.root)
        if sys.platform != "linux":
            raise SystemExit("Gambeson runs on Linux alone")
        if shutil.which("cargo") is None:
            raise SystemExit(
                "cargo is not there, and Gambeson is built with it: install Rust (rustup.rs) and try again"
            )
        subprocess.run(["cargo", "build", "--release", "--locked", "--workspace"], cwd=root, check=True)
        release = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "release"
        self._staged = tempfile.TemporaryDirectory(prefix="gambeson-wheel-")
        prefix = Path(self._staged.name)
        subprocess.run([root / "tools" / "install.sh", release, prefix], check=True, stdout=subprocess.DEVNULL)
        module = prefix / "_native.abi3.so"
        shutil.copy(release / "libgambeson_native.so", module)
        # What debuggers want is four fifths of it.
        binaries = [module, prefix / "bin" / "gambeson", *(prefix / "lib" / "gambeson").iterdir()]
        subprocess.run(["strip", "--strip-debug", *binaries], check=True)
        build_data["force_include"][str(module)] = "gambeson/_native.abi3.so"
        build_data["shared_scripts"][str(prefix / "bin" / "gambeson")] = "gambeson"
        for folder in ("lib/gambeson", "share"):
            build_data["shared_data"][str(prefix / folder)] = folder
        build_data["pure_python"] = False
        build_data["tag"] = f"{PYTHON}-abi3-{platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is there."""
        self._staged.cleanup()
