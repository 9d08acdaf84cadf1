"""Staged code: a stage's functions as workers get them, by hash, and signed by the manager (threat-model.md, 13)."""

from __future__ import annotations

import builtins
import hashlib
import inspect
import json
import pickletools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle

from gambeson import _native
from gambeson.farm._annotation import Labelled
from gambeson.farm._errors import StageError
from gambeson.farm._skeleton import Stage

_SECRET_NAME = re.compile(r"(^|_)(password|passwd|passphrase|secret|token|api_?key|private_?key)s?$", re.IGNORECASE)


@dataclass(frozen=True)
class StagedCode:
    """Functions on their way to workers."""

    job: bytes
    name: str
    version: int
    code: bytes
    key: bytes
    """The manager's public key."""
    signature: bytes
    packages: dict[str, str]
    """Versions of the packages that the code imports."""

    @property
    def hash(self) -> bytes:
        """SHA-256 of the code."""
        return hashlib.sha256(self.code).digest()

    def encode(self) -> list[bytes]:
        """As it is sent."""
        said = {
            "job": self.job.hex(),
            "name": self.name,
            "version": self.version,
            "key": self.key.hex(),
            "signature": self.signature.hex(),
            "packages": self.packages,
        }
        return [json.dumps(said).encode(), self.code]

    @classmethod
    def decode(cls, parts: list[Any]) -> StagedCode:
        """What was sent. Nothing of it is believed yet: see `check`."""
        said = json.loads(bytes(parts[0]))
        job, key, signature = (bytes.fromhex(said[name]) for name in ("job", "key", "signature"))
        return cls(job, said["name"], said["version"], bytes(parts[1]), key, signature, dict(said["packages"]))

    def check(self, owner: bytes, job: bytes, pinned: frozenset[str] | None) -> None:
        """Before it is unpickled: it must be signed by the owner of this key, for this job, and among the pinned
        hashes.

        Raises `StageError`.
        """
        staged = (self.job, self.name, self.version, self.hash)
        if self.job != job or not _native.is_signed(owner, staged, (self.key, self.signature)):
            what = f"stage {self.name!r} is not signed by the manager for this job, and is not loaded"
            raise StageError(what)
        if pinned is not None and self.hash.hex() not in pinned:
            what = (
                f"stage {self.name!r} has the hash {self.hash.hex()}, which is not among those that this worker was "
                "pinned to; add it there if it may run"
            )
            raise StageError(what)

    def load(self) -> tuple[Callable[..., Any], ...]:
        """Its functions.

        Raises `StageError`, for example where a package is missing or another version.
        """
        for package, version in self.packages.items():
            module = sys.modules.get(package)
            found = getattr(module, "__version__", version) if module is not None else _installed(package)
            if found is None:
                needs = f"stage {self.name!r} needs the package {package} {version}"
                what = f"{needs}, which is not installed here; install it"
                raise StageError(what)
            if _release(found) != _release(version):
                what = (
                    f"stage {self.name!r} was pickled with {package} {version}, and here is {package} {found}; "
                    "install the same release on both sides"
                )
                raise StageError(what)
        try:
            functions: tuple[Callable[..., Any], ...] = cloudpickle.loads(self.code)
        except Exception as error:
            what = f"stage {self.name!r} cannot be loaded: {type(error).__name__}: {error}"
            if isinstance(error, ImportError):
                what += "; install that on the worker, or define the function in the program itself"
            raise StageError(what) from error
        return functions


def pickled(stages: tuple[Stage[Any, Any], ...]) -> tuple[bytes, dict[str, str]]:
    """The code of stages, and the versions of packages that it imports.

    Raises `StageError` for what cannot be pickled, and for secrets that would go along.
    """
    name = " + ".join(stage.name for stage in stages)
    for stage in stages:
        _check_secrets(stage)
    try:
        code: bytes = cloudpickle.dumps(tuple(stage.function for stage in stages), 5)
    except Exception as error:
        what = (
            f"stage {name!r} cannot be pickled: {error}; what it closes over goes with it to the workers, so let it "
            "make open files, locks, connections and the like itself"
        )
        raise StageError(what) from error
    return code, _packages(code)


def _check_secrets(stage: Stage[Any, Any]) -> None:
    for name, value in _captured(stage.function):
        if isinstance(value, Labelled):
            what = f"{name!r}, which is labelled {', '.join(sorted(value.labels))}"
        elif isinstance(value, (str, bytes)) and _is_private_key(value):
            what = f"{name!r}, a private key"
        elif isinstance(value, (str, bytes)) and value and _SECRET_NAME.search(name):
            what = f"{name!r}, which looks like a secret"
        else:
            continue
        if not stage.marks.code:
            sentence = (
                f"stage {stage.name!r} closes over {what}; it would go to the workers as part of code that is not "
                "sensitive. Mark the stage @sensitive_code, so that its code is always sealed, or give it as data"
            )
            raise StageError(sentence)


def _is_private_key(value: str | bytes) -> bool:
    text = value if isinstance(value, str) else value.decode("latin-1")
    return "-----BEGIN" in text and "PRIVATE KEY-----" in text


def _captured(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What goes along with a function that is pickled by value: its closure, globals that it names, its defaults."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        yield from function.keywords.items()
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):
        return
    try:
        found = inspect.getclosurevars(function)
    except ValueError:
        return
    yield from found.nonlocals.items()
    yield from ((name, value) for name, value in found.globals.items() if not hasattr(builtins, name))
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def _packages(code: bytes) -> dict[str, str]:
    """The versions of the packages whose modules a pickle names."""
    strings: list[str] = []
    modules: set[str] = set()
    for opcode, argument, _ in pickletools.genops(code):
        if opcode.name == "STACK_GLOBAL" and len(strings) >= 2:
            modules.update(string.partition(".")[0] for string in strings[-2:])
        elif opcode.name == "GLOBAL":
            modules.add(str(argument).split(" ")[0].partition(".")[0])
        elif isinstance(argument, str):
            strings.append(argument)
            # Modules that a function imports by name stand in its globals as strings, too.
            modules.add(argument.partition(".")[0])
    versions: dict[str, str] = {}
    for module in modules - set(sys.stdlib_module_names) - {"gambeson", "cloudpickle"}:
        version = getattr(sys.modules.get(module), "__version__", None)
        if isinstance(version, str):
            versions[module] = version
    return versions


def _installed(package: str) -> str | None:
    """The version of a package that is not imported yet; none if it is not there."""
    try:
        return str(getattr(__import__(package), "__version__", ""))
    except ImportError:
        return None


def _release(version: str) -> tuple[str, ...]:
    """What has to be the same on both sides: the first two numbers."""
    return tuple(version.split(".")[:2])
