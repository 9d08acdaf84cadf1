"""Fixtures and options that all tests share; what they do is in tests/harness."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import mpis
from harness.farms import Farmer
from harness.hosts import Hosts, hosts
from harness.jobs import Job, Runner
from harness.mpis import Mpi
from harness.programs import Programs
from harness.python import Package
from harness.sealed_files import RULES, Lab


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gambeson")
    group.addoption("--plain", action="store_true", help="run the jobs without Gambeson, to learn what fails by itself")
    group.addoption("--long", action="store_true", help="run the tests marked long too")
    group.addoption("--attack-seed", type=int, default=None, help="tests/attacks: only the attack of this seed")
    group.addoption("--mpi", default="", help="only these MPIs, separated by commas")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mpi" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("mpis")
    names = marker.args if marker else mpis.DEFAULT
    chosen = [name for name in metafunc.config.getoption("--mpi").split(",") if name]
    metafunc.parametrize(
        "mpi", [name for name in names if not chosen or name in chosen], indirect=True, scope="session"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="long: only with --long"))
        if item.get_closest_marker("namespaces") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root, to make network namespaces"))


def unavailable(reason: str) -> None:
    """Skips on a developer's machine; where everything must be there, as in CI, it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each of MPICH, Open MPI and Intel MPI in turn, or those that the mark `mpis` names."""
    try:
        return mpis.find(request.param)
    except mpis.Unavailable as reason:
        unavailable(str(reason))
        raise


@pytest.fixture(scope="session")
def gambeson() -> Path:
    """The built program: $GAMBESON, or the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", mpis.ROOT / "target"))
    path = Path(os.environ.get("GAMBESON", target / "release" / "gambeson"))
    if not path.is_file():
        unavailable(f"{path} is missing: run make build")
    return path


@pytest.fixture(scope="session")
def neighbours() -> Path:
    """The example, as `cargo test` or `cargo build --examples` left it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", mpis.ROOT / "target"))
    built = [target / profile / "examples" / "neighbours" for profile in ("release", "debug")]
    found = sorted((path for path in built if path.is_file()), key=lambda path: path.stat().st_mtime)
    if not found:
        unavailable(f"no {built[-1]}: run make unit")
    return found[-1]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The Python package, installed from the wheel that `make python` built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", mpis.ROOT / "target"))
    python = mpis.ROOT / "build" / "venv-python" / "bin" / "python"
    wheels = sorted((target / "wheels").glob("gambeson-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels or not python.is_file():
        unavailable(f"there is no wheel in {target / 'wheels'}, or no {python}: run make python environments")
    return Package(wheels[-1], python, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def plain(request: pytest.FixtureRequest) -> bool:
    """Whether jobs run without Gambeson (--plain)."""
    return bool(request.config.getoption("--plain"))


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest, plain: bool) -> Runner:
    return Runner(Path("unused") if plain else request.getfixturevalue("gambeson"), plain)


@pytest.fixture(scope="session")
def run_job(runner: Runner) -> Callable[..., Job]:
    """run_job(mpi, program, n=2, options=[], timeout=120, ...) -> Job; see harness.jobs.Runner.run."""
    return runner.run


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The programs under tests/programs, compiled where need be."""
    return Programs(mpis.ROOT / "tests" / "programs", mpis.ROOT / "build" / "programs")


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts with a network between them; the test needs the mark `namespaces`."""
    with hosts(tmp_path, 2) as made:
        yield made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Hosts h1, where managers of farms run, h2 and h3; the test needs the mark `namespaces`."""
    with hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


@pytest.fixture
def farmer(site: Hosts, package: Package, gambeson: Path, tmp_path: Path) -> Farmer:
    return Farmer(site, package, gambeson, tmp_path)


@pytest.fixture
def lab(gambeson: Path, mpi: Mpi, tmp_path: Path) -> Lab:
    policy = tmp_path / "gambeson.toml"
    policy.write_text(RULES)
    policy.chmod(0o600)
    return Lab(gambeson, mpi, tmp_path)
