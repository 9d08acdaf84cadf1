"""Python's values as TOML, the language of experiments."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping


def document(table: Mapping[str, object]) -> str:
    """A table as a text of its own; what is None is left out, as a key that is not there."""
    return "".join(f"{_key(key)} = {value(inner)}\n" for key, inner in table.items() if inner is not None)


def changes(values: Mapping[str, object]) -> list[str]:
    """Other values for keys, as `--set KEY=VALUE` of the command line has them."""
    return [f"{key}={told(value)}" for key, value in values.items()]


def told(swept: object) -> str:
    """A value as the command line has it: a string is TOML, or else a string."""
    return swept if isinstance(swept, str) else value(swept)


def value(given: object) -> str:
    """A value as TOML."""
    if not isinstance(given, str | bool | int | float) and hasattr(given, "tolist"):
        given = given.tolist()  # numpy's
    match given:
        case bool():
            return "true" if given else "false"
        case int():
            return str(int(given))
        case float():
            return repr(float(given))
        case str():
            return json.dumps(given, ensure_ascii=False)
        case os.PathLike():
            return value(os.fspath(given))
        case Mapping():
            inner = (f"{_key(key)} = {value(inner)}" for key, inner in given.items() if inner is not None)
            return "{ " + ", ".join(inner) + " }"
        case Iterable() if not isinstance(given, bytes):
            return "[" + ", ".join(value(inner) for inner in given) + "]"
        case _:
            raise TypeError(f"{given!r} is no value of an experiment; give a bool, number, string, list or dict")


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)
