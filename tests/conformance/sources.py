"""Sources of the distribution's packages, for the tests that they bring."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness.mpis import ROOT, Unavailable

BUILD = ROOT / "build" / "conformance"


def sources(package: str) -> Path:
    """The distribution's source of a package, which is fetched once."""
    found = sorted(BUILD.glob(f"{package}-*/"))
    if found:
        return found[0]
    if not shutil.which("apt-get"):
        raise Unavailable(f"the sources of {package} come from Debian's archive, and this host has no apt-get")
    apt = BUILD / "apt"
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    # The lists of binary packages say where the sources are; the host's own lists stay as they are.
    line = ["--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages", "Label: Debian"]
    listed = subprocess.run(["apt-get", "indextargets", *line], check=True, capture_output=True, text=True).stdout
    (apt / "sources.list").write_text("".join(sorted(set(listed.splitlines(keepends=True)))))
    places = {"Dir::Etc::SourceList": apt / "sources.list", "Dir::State::Lists": apt / "lists"}
    settings = {**places, "Dir::Etc::SourceParts": "/dev/null", "APT::Sandbox::User": "root"}
    options = ["-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    for words in (["update"], ["source", "--download-only", package]):
        subprocess.run(["apt-get", *options, *words], check=True, capture_output=True, cwd=apt)
    archive = next(apt.glob(f"{package}_*.orig.tar.*"))
    subprocess.run(["tar", "-xf", str(archive), "-C", str(BUILD)], check=True)
    return sorted(BUILD.glob(f"{package}-*/"))[0]
