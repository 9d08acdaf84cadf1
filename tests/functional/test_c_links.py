"""Links from C: programs compiled against an installed tree, as a newcomer does it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from harness.jobs import run_marked
from harness.mpis import ROOT, clean_environment
from harness.python import Package

PROGRAMS = ROOT / "tests" / "programs" / "links"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


class Installed:
    """A tree that `make install` made, and a folder to compile in."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self.prefix = prefix
        self.folder = folder

    def compile(self, compiler: str, source: Path, *flags: str) -> Path:
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib" / "pkgconfig")}
        program = self.folder / source.stem
        command = f'{compiler} {" ".join(flags)} "{source}" -o "{program}" $(pkg-config --cflags --libs gambeson-link)'
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return program


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix")
    run(ROOT / "tools" / "install.sh", gambeson.parent, prefix)
    return prefix


@pytest.fixture
def installed(tree: Path, tmp_path: Path) -> Installed:
    return Installed(tree, tmp_path)


def test_every_function_does_what_its_header_says(installed: Installed) -> None:
    program = installed.compile("cc", PROGRAMS / "all.c", *STRICT, "-std=gnu11", "-g", "-pthread")
    assert run(program, installed.folder) == "all ok\n"


def test_no_memory_is_lost_or_used_after_its_end(installed: Installed) -> None:
    """gcc's sanitizers watch the program and what the library allocates for it."""
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = installed.compile("gcc", PROGRAMS / "all.c", *sanitize, "-std=gnu11", "-g", "-pthread")
    assert run(program, installed.folder) == "all ok\n"


def test_all_calls_are_called(installed: Installed) -> None:
    """No function without a test: what the library exports, the program above calls."""
    symbols = run("nm", "-D", "--defined-only", installed.prefix / "lib" / "libgambeson-link.so").split()
    exported = {symbol for symbol in symbols if symbol.startswith("gambeson_link_")}
    source = (PROGRAMS / "all.c").read_text()
    assert exported
    assert not {name for name in exported if f"{name}(" not in source}


def test_cxx_takes_the_header(installed: Installed) -> None:
    source = installed.folder / "program.cc"
    source.write_text("""
#include <gambeson/link.h>

int main() {
    gambeson_link_identity *identity = nullptr;
    if (gambeson_link_identity_generate(&identity) != GAMBESON_LINK_STATUS_OK) return 1;
    gambeson_link_identity_free(identity);
    return 0;
}
""")
    run(installed.compile("c++", source, *STRICT, "-std=c++17"))


def test_neighbours_of_one_job_in_c_and_in_python(
    installed: Installed, gambeson: Path, package: Package, tmp_path: Path
) -> None:
    """Identity, trust and policy come from the job, in both languages the same."""
    policy = tmp_path / "open.toml"
    policy.write_text('[[rule]]\nbetween = ["*", "*"]\nclass = "neighbours"\nprotection = "integrity"\n')
    in_c = f"{installed.compile('cc', PROGRAMS / 'neighbour.c', *STRICT, '-std=gnu11')} {tmp_path / 's'} 2 0"
    in_python = f"{package.python} {PROGRAMS / 'neighbour.py'} {tmp_path / 's'} 2 1"
    command = [str(gambeson), "run", "--policy", str(policy), "--", "sh", "-c", f"{in_c} & {in_python} && wait $!"]
    job = run_marked(command, env={**clean_environment(), "PYTHONPATH": str(package.folder)}, timeout=60).check()
    assert sorted(job.stdout.splitlines()) == [
        "0: 1, asked by a process of the job with the role rank (integrity)",
        "1: 0, asked by a process of the job with the role rank (integrity)",
    ], job.describe()
    assert "had links, as the policy has them" in job.stderr, job.describe()


def test_the_example_runs_as_it_says(installed: Installed) -> None:
    said = run(installed.compile("cc", ROOT / "examples" / "links" / "ping.c", *STRICT))
    assert "asked over a sealed link, and got: hello" in said
    assert "us each" in said
    assert "one more:" in said and "used up" in said
