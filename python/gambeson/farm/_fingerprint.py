"""Fingerprints: what a stage computes by, and what it is given, as digests that the next run of the program finds
again.

Pickles are not that: they have classes of the program with numbers drawn at random, sets in the order of hashes that
are random, too, and functions of modules by their names alone. So the program is looked at anew: code, and what it
names, down to where Python's own library or an installed package begins. Equal fingerprints have to mean the same; that
different ones mean something else nobody promises.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import pickle
import platform
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gambeson import _native
from gambeson.farm._annotation import MARKS

if TYPE_CHECKING:
    from gambeson.farm._token import Token

_STACK_GLOBAL: Final = b"\x93"
_PROGRAM: Final = ("__main__", "__mp_main__")
_OURS: Final = frozenset({"gambeson", "cloudpickle"})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_INCIDENTAL: Final = frozenset(
    {
        "__abstractmethods__", "__annotate__", "__annotations__", "__annotations_cache__", "__dict__", "__doc__",
        "__firstlineno__", "__module__", "__slotnames__", "__static_attributes__", "__weakref__", "_abc_impl",
    }
)  # fmt: skip
"""What a class has beside what was written down."""


class Fingerprints:
    """Takes fingerprints, as long as what lies in files stays as it is."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[str, ...]] = {}
        self._imports: dict[str, frozenset[str]] = {}
        self._codes: dict[types.CodeType, tuple[bytes, list[str]]] = {}
        self._platform = (platform.python_implementation(), *sys.version_info[:3], _native.VERSION)

    def of(self, value: object) -> bytes:
        """The fingerprint of functions, or of anything.

        Raises what keeps it from being taken.
        """
        sink = _Digest()
        try:
            # What is shared and what is merely equal is the same.
            _Normal(sink, self, shared=False).dump((self._platform, value))
        except (ValueError, RecursionError):
            # It leads back to itself.
            sink = _Digest()
            _Normal(sink, self, shared=True).dump((self._platform, value))
        return sink.digest()

    def of_token(self, token: Token) -> bytes:
        """The fingerprint of a token's items; of those with objects in them as the program has them.

        Raises what keeps it from being taken.
        """
        if _STACK_GLOBAL in bytes(token.parts[0]):
            return self.of(token.items())
        sink = _Digest()
        for part in token.parts:
            size = memoryview(part).nbytes
            sink.write(size.to_bytes(8, "big"))
            sink.write(part)
        return sink.digest()

    def module(self, name: str) -> tuple[tuple[str, ...], ...]:
        """What the code of a module is, and of what it imports: by version where it was installed, else by its text."""
        found: dict[str, tuple[str, ...]] = {}
        left = [name.partition(".")[0]]
        while left:
            top = left.pop()
            if top not in found:
                found[top] = self._own(top)
                left += self._imports.get(top, ())
        return tuple(sorted(found.values()))

    def is_foreign(self, name: str) -> bool:
        """Whether a module is Python's own, or installed in a release: what it is its name and that say."""
        return self._own(name.partition(".")[0])[0] in ("python", "release")

    def code(self, code: types.CodeType) -> tuple[bytes, list[str]]:
        """The fingerprint of code, and the globals that it names, those of code inside it among them."""
        known = self._codes.get(code)
        if known is None:
            names, imports = set(), set()
            for instruction in dis.get_instructions(code):
                if "GLOBAL" in instruction.opname or instruction.opname == "LOAD_NAME":
                    names.add(str(instruction.argval))
                elif instruction.opname == "IMPORT_NAME" and instruction.argval:
                    imports.add(str(instruction.argval))
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    names.update(self.code(constant)[1])
            described = (
                code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
                code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
                getattr(code, "co_exceptiontable", None), [(name, self.module(name)) for name in sorted(imports)],
            )  # fmt: skip
            known = self._codes[code] = (self.of(described), sorted(names))
        return known

    def _own(self, top: str) -> tuple[str, ...]:
        known = self._modules.get(top)
        if known is None:
            known = self._modules[top] = self._look(top)
        return known

    def _look(self, top: str) -> tuple[str, ...]:
        if top in _PROGRAM:
            return ("program",)
        if top in sys.stdlib_module_names or top in _OURS:
            return ("python", top)
        roots = _roots(top)
        is_installed = any(not _INSTALLED.isdisjoint(root.parts) for root in roots)
        if is_installed and (version := _version(top)) is not None:
            return ("release", top, version)
        texts = hashlib.sha256()
        imports: set[str] = set()
        for root in roots:
            for path in sorted(_files(root)):
                code = path.read_bytes()
                texts.update(hashlib.sha256(str(path.relative_to(root.parent)).encode()).digest())
                texts.update(hashlib.sha256(code).digest())
                if path.suffix == ".py":
                    imports |= _imported(code)
        self._imports[top] = frozenset(imports - set(sys.stdlib_module_names))
        return ("text", top, texts.hexdigest())


def _roots(top: str) -> list[Path]:
    """The folders of a package, or the file of a module; none if there is none."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _files(root: Path) -> Iterator[Path]:
    suffixes = tuple(importlib.machinery.all_suffixes())
    for path in [root] if root.is_file() else root.rglob("*"):
        if path.name.endswith(suffixes) and "__pycache__" not in path.parts:
            yield path


def _version(top: str) -> str | None:
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return None


def _imported(code: bytes) -> set[str]:
    """The modules that a text imports, wherever in it."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


class _Digest:
    """A file whose bytes nobody needs."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return memoryview(data).nbytes

    def digest(self) -> bytes:
        return self._hash.digest()


class _Normal(pickle.Pickler):
    """Pickles, but for code: of that it says what it is."""

    def __init__(self, sink: _Digest, prints: Fingerprints, shared: bool) -> None:
        super().__init__(sink, 5)
        self.fast = not shared
        self.prints = prints
        self._seen: dict[int, tuple[int, object]] = {}

    def persistent_id(self, value: Any) -> Any:
        """What stands for something that is code, or has no order; nothing for what pickles as it is."""
        describe = _DESCRIBED.get(type(value))
        if describe is None:
            if not isinstance(value, type):
                return None
            describe = _class
        if describe in (_function, _class):
            # They name each other.
            if id(value) in self._seen:
                return self._seen[id(value)][0]
            self._seen[id(value)] = len(self._seen), value
        return describe(self, value)


def _function(normal: _Normal, function: types.FunctionType) -> Any:
    prints, module = normal.prints, function.__module__ or ""
    head = ("function", prints.module(module), function.__qualname__)
    closure = [_cell(cell) for cell in function.__closure__ or ()]
    given = (function.__defaults__, function.__kwdefaults__, closure)
    if prints.is_foreign(module):
        return (*head, *given)
    named = []
    for name in prints.code(function.__code__)[1]:
        if name in function.__globals__:
            value = function.__globals__[name]
            named.append((name, _origin(prints, value), value))
    attributes = sorted((name, value) for name, value in vars(function).items() if name != MARKS)
    return (*head, *given, function.__code__, named, attributes)


def _cell(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _origin(prints: Fingerprints, value: object) -> Any:
    """The module that something comes from which may be pickled by its name."""
    module = getattr(value, "__module__", None)
    return prints.module(module) if isinstance(module, str) else None


def _code(normal: _Normal, code: types.CodeType) -> Any:
    return "code", normal.prints.code(code)[0]


def _class(normal: _Normal, class_: type) -> Any:
    module = str(class_.__module__)
    head = ("class", normal.prints.module(module), class_.__qualname__)
    if normal.prints.is_foreign(module):
        return head
    members = sorted(item for item in vars(class_).items() if item[0] not in _INCIDENTAL)
    return (*head, type(class_), class_.__bases__, members)


def _module(normal: _Normal, module: types.ModuleType) -> Any:
    return "module", module.__name__, normal.prints.module(module.__name__)


def _builtin(normal: _Normal, function: types.BuiltinFunctionType) -> Any:
    if not isinstance(function.__self__, (types.ModuleType, type(None))):
        # A method: by its object.
        return None
    return "builtin", normal.prints.module(function.__module__ or ""), function.__qualname__


def _set(normal: _Normal, values: set[Any] | frozenset[Any]) -> Any:
    return "set", type(values).__name__, sorted(normal.prints.of(value) for value in values)


def _descriptor(_: _Normal, descriptor: Any) -> Any:
    return "descriptor", descriptor.__objclass__.__qualname__, descriptor.__name__


_DESCRIBED: Final[dict[type, Callable[[_Normal, Any], Any]]] = {
    types.FunctionType: _function,
    types.BuiltinFunctionType: _builtin,
    types.CodeType: _code,
    types.ModuleType: _module,
    set: _set,
    frozenset: _set,
    types.MappingProxyType: lambda _, mapping: ("mapping", dict(mapping)),
    types.GetSetDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    property: lambda _, it: ("property", it.fget, it.fset, it.fdel),
    staticmethod: lambda _, it: ("static method", it.__func__),
    classmethod: lambda _, it: ("class method", it.__func__),
    functools.cached_property: lambda _, it: ("cached property", it.func),
    type(functools.cache(len)): lambda _, it: ("cached", it.__wrapped__),
}
