#!/usr/bin/env python3
"""One reference of links for Rust, C and Python, whose words are those of the Rust crate.

docs/reference/links.toml says which function of C and which method of Python an item of Rust is. From the comments of
the Rust sources this program writes the first paragraph of each comment in crates/gambeson-link-c (of which cbindgen
makes the header) and of each docstring in python/gambeson/link, and with what C and Python say further
docs/reference/links.md.

    tools/reference.py           writes what is stale (make reference)
    tools/reference.py --check   says what is stale, and what is missing in the table: a public item of any of the three
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "reference" / "links.toml"
PAGE = ROOT / "docs" / "reference" / "links.md"
LINK = ROOT / "crates" / "gambeson-link" / "src"
PROTO = ROOT / "crates" / "gambeson-proto" / "src"
C = ROOT / "crates" / "gambeson-link-c"
PYTHON = ROOT / "python" / "gambeson" / "link"
WIDTH = 120


@dataclass
class Item:
    """What a language has: its comment's paragraphs, and its signature."""

    paragraphs: list[str]
    signature: str


@dataclass
class Row:
    """What is one thing in the three languages."""

    rust: str
    c: list[str]
    python: list[str]
    why: str


@dataclass
class Part:
    title: str
    rows: list[Row] = field(default_factory=list)


def paragraphs(lines: list[str]) -> list[str]:
    text = "\n".join(lines).strip("\n")
    return [block.strip("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]


# --- Rust


def rust_files() -> list[tuple[Path, dict[str, str]]]:
    """The public sources, and by which names the crate gives some types out again."""
    own = [path for path in sorted(LINK.glob("*.rs")) if path.stem not in INTERNAL]
    startpoint = PROTO / "startpoint"
    return [(path, {}) for path in own] + [
        (LINK / "group" / "operation.rs", {}),
        (startpoint / "mod.rs", {"Startpoint": "Capability", "AddressKind": "Transport"}),
        (startpoint / "caveat.rs", {}),
        (startpoint / "refusal.rs", {}),
        (PROTO / "suite.rs", {}),
    ]


# Modules of gambeson-link that no program sees.
INTERNAL = {"desk", "handshake", "link", "pool", "reconnect", "resumption", "route", "session", "stranger", "stream"}


def rust_items() -> dict[str, Item]:
    """The public items, `Type` or `Type::name`; rustfmt's layout is relied on."""
    items: dict[str, Item] = {}
    for path, renamed in rust_files():
        owner, inside, docs = "", "", []
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if line.startswith("#[cfg(test)]"):
                break
            code = line.strip()
            if code.startswith("///"):
                docs.append(code[3:].removeprefix(" "))
                continue
            if code.startswith("#["):
                continue
            if heading := re.match(r"(?:pub )?(impl|struct|enum)\b(?:<[^{]*?>)? ?(?:[\w:]+ for )?(\w+)", line):
                owner, inside = renamed.get(heading[2], heading[2]), heading[1]
                if line.startswith("pub ") and docs:
                    items[owner] = Item(paragraphs(docs), line.rstrip(" {;"))
            elif function := re.match(r"( {4})?pub (?:const )?fn (\w+)", line):
                signature = " ".join(part.strip() for part in lines[at : at + 12])
                signature = re.sub(r"\( ", "(", re.sub(r",? \)", ")", signature.split(" {")[0]))
                items[f"{owner}::{function[2]}" if function[1] else function[2]] = Item(paragraphs(docs), signature)
            elif owner == "Operation" and (entry := re.match(r" {4}pub const (\w+):", line)):
                items[f"{owner}::{entry[1]}"] = Item(paragraphs(docs), code.split(" = ")[0])
            elif inside == "struct" and (entry := re.match(r" {4}pub (?:const )?(\w+): (.*?),?$", line)):
                items[f"{owner}::{entry[1]}"] = Item(paragraphs(docs), f"pub {entry[1]}: {entry[2]}")
            elif inside == "enum" and docs and (entry := re.match(r" {4}(\w+)(.*?)(?: \{|,)?$", line)):
                items[f"{owner}::{entry[1]}"] = Item(paragraphs(docs), f"{owner}::{entry[1]}{entry[2]}")
            docs = []
    public = re.findall(r"\w+", " ".join(re.findall(r"^pub use (.*);", (LINK / "lib.rs").read_text(), re.M)))
    return {name: item for name, item in items.items() if name.split("::")[0] in public}


# --- C


HEADER = C / "include" / "gambeson" / "link.h"


def c_name(enum: str, variant: str) -> str:
    return f"{enum}_{re.sub(r'(?<!^)(?=[A-Z])', '_', variant)}".upper()


def c_comments() -> list[tuple[Path, int, int, str]]:
    """Where the sources have comments of what C sees: file, first line, line behind the last, and C's name."""
    found = []
    for path in sorted((C / "src").glob("*.rs")):
        enum, first = "", None
        for at, line in enumerate(path.read_text().splitlines()):
            code = line.strip()
            if code.startswith("///"):
                first = at if first is None else first
                last = at + 1
                continue
            if code.startswith("#["):
                continue
            if not line.startswith(" "):
                enum = ""
            pattern = r"(?:pub )(?:unsafe )?(?:extern \"C\" )?(fn|struct|enum|const|type) ((?:gambeson|GAMBESON)_\w+)"
            name = ""
            if declared := re.match(pattern, line):
                name = declared[2]
                enum = name if declared[1] == "enum" else ""
            elif enum and (variant := re.match(r" {4}(\w+) = ", line)):
                name = c_name(enum, variant[1])
            if name and first is not None:
                found.append((path, first, last, name))
            first = None
    return found


def c_items() -> dict[str, Item]:
    header = HEADER.read_text()
    items = {}
    for path, first, last, name in c_comments():
        lines = [line.strip()[3:].removeprefix(" ") for line in path.read_text().splitlines()[first:last]]
        declared = re.search(rf"^[\w *]*\b{name}\(.*?\);", header, re.M | re.S)
        declared = declared or re.search(rf"^typedef.*\b{name}\b.*?;", header, re.M)
        signature = re.sub(r"\s*\n\s*", " ", declared[0]) if declared else name
        items[name] = Item(paragraphs(lines), signature)
    return items


# --- Python


@dataclass
class Docstring:
    path: Path
    node: ast.Constant
    name: str
    signature: str


def python_docstrings() -> list[Docstring]:
    """The docstrings of what gambeson.link gives out: classes, their public methods and attributes."""
    tree = ast.parse((PYTHON / "__init__.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    public = {name for node in assigned for name in ast.literal_eval(node.value)}
    found = []
    for path in sorted(PYTHON.glob("_[a-z]*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.name not in public:
                continue
            bases = ", ".join(base for base in map(ast.unparse, node.bases) if base != "Closing")
            found += docstring(path, node.body, node.name, f"class {node.name}({bases})".replace("()", ""))
            for at, inner in enumerate(node.body):
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    spoken_of = not inner.name.startswith("_") or f"{node.name}.{inner.name}" in SPOKEN
                    if not spoken_of:
                        found += attributes(path, node.name, inner.body)
                        continue
                    word = "async def" if isinstance(inner, ast.AsyncFunctionDef) else "def"
                    returns = f" -> {ast.unparse(inner.returns)}" if inner.returns else ""
                    signature = f"{word} {inner.name}({ast.unparse(inner.args)}){returns}"
                    found += docstring(path, inner.body, f"{node.name}.{inner.name}", signature)
                    found += attributes(path, node.name, inner.body)
                found += attribute(path, node.name, node.body, at)
    return found


# Methods that programs use by other words.
SPOKEN = {
    "Domain.__init__",
    "Trust.__init__",
    "Answers.__next__",
    "Region.__len__",
    "Group.__len__",
    "Answers.__anext__",
}


def docstring(path: Path, body: list[ast.stmt], name: str, signature: str) -> list[Docstring]:
    match body[0]:
        case ast.Expr(value=ast.Constant(value=str()) as text):
            return [Docstring(path, text, name, signature)]
    raise SystemExit(f"reference: {path}: {name} has no docstring")


def attributes(path: Path, owner: str, body: list[ast.stmt]) -> list[Docstring]:
    return [found for at in range(len(body)) for found in attribute(path, owner, body, at)]


def attribute(path: Path, owner: str, body: list[ast.stmt], at: int) -> list[Docstring]:
    """An attribute with a string behind it."""
    if at + 1 == len(body):
        return []
    match body[at]:
        case ast.Assign(targets=[ast.Name(id=name)]):
            signature = f"{owner}.{name}"
        case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=kind):
            signature = f"{name}: {ast.unparse(kind)}"
        case _:
            return []
    match body[at + 1]:
        case ast.Expr(value=ast.Constant(value=str()) as text):
            return [Docstring(path, text, f"{owner}.{name}", signature)]
    return []


def python_items() -> dict[str, Item]:
    return {
        found.name: Item(paragraphs(textwrap.dedent(" " * 8 + str(found.node.value)).splitlines()), found.signature)
        for found in python_docstrings()
    }


# --- The table


def table() -> list[Part]:
    parts = []
    for entry in tomllib.loads(TABLE.read_text())["part"]:
        rows = [Row(row[0], row[1].split(), row[2].split(), row[3] if len(row) > 3 else "") for row in entry["rows"]]
        parts.append(Part(entry["title"], rows))
    return parts


def missing(parts: list[Part]) -> list[str]:
    """What the table lacks, has too much, or leaves without a reason."""
    rows = [row for part in parts for row in part.rows]
    wrong = []
    languages = [
        ("Rust", set(rust_items()), {row.rust for row in rows if row.rust}),
        ("C", set(c_items()), {name for row in rows for name in row.c}),
        ("Python", set(python_items()), {name for row in rows for name in row.python}),
    ]
    for language, there, told in languages:
        wrong += [f"{language}: {name} is in no row of {TABLE.name}" for name in sorted(there - told)]
        wrong += [f"{language}: {name} is in {TABLE.name} and nowhere else" for name in sorted(told - there)]
    for row in rows:
        if not (row.rust and row.c and row.python) and not row.why:
            known = row.rust or " ".join(row.c + row.python)
            wrong.append(f"{known} is not in all three languages, and {TABLE.name} does not say why")
    return wrong


def spoken(text: str, names: dict[str, str]) -> str:
    """Rust's words with another language's names in its links."""

    def name(match: re.Match[str]) -> str:
        known = match[1].removeprefix("crate::")
        return f"`{names.get(known, known)}`"

    return re.sub(r"\[`([^`]+)`\](?:\([^)]*\))?", name, text)


def words(language: str, parts: list[Part], rust: dict[str, Item]) -> dict[str, str]:
    """The first paragraph of each comment of a language, by its name there."""
    rows = [row for part in parts for row in part.rows]
    theirs = {row.rust: getattr(row, language) for row in rows if row.rust}
    names = {name: there[0] for name, there in theirs.items() if there}
    return {
        name: spoken(rust[row.rust].paragraphs[0], names)
        for row in rows
        if row.rust in rust
        for name in getattr(row, language)
    }


# --- What is written


def wrap(text: str, prefix: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH - len(prefix), break_long_words=False, break_on_hyphens=False)


def c_sources(told: dict[str, str]) -> dict[Path, str]:
    files = {path: path.read_text().splitlines() for path, *_ in c_comments()}
    for path, first, last, name in reversed(c_comments()):
        if name not in told:
            continue
        indent = files[path][first][: -len(files[path][first].lstrip())]
        blank = next((at for at in range(first, last) if files[path][at].strip() == "///"), last)
        prefix = f"{indent}/// "
        files[path][first:blank] = [prefix + line for line in wrap(told[name], prefix)]
    return {path: "\n".join(lines) + "\n" for path, lines in files.items()}


def python_sources(told: dict[str, str]) -> dict[Path, str]:
    files: dict[Path, list[str]] = {}
    for found in sorted(python_docstrings(), key=lambda found: found.node.lineno, reverse=True):
        lines = files.setdefault(found.path, found.path.read_text().splitlines())
        if found.name not in told:
            continue
        first, last = found.node.lineno - 1, found.node.end_lineno or found.node.lineno
        indent = " " * found.node.col_offset
        rest = str(found.node.value).split("\n\n", 1)[1:]
        # The opening quotes take room in the first line, the closing ones in the last if there is no other.
        text = wrap('"""' + told[found.name] + ("" if rest else '"""'), indent)
        if rest:
            text += ["", *rest[0].strip().splitlines(), '"""']
        elif len(text) > 1:
            # Shorter by the quotes, which formatters put behind a single line.
            text = [*wrap('"""' + told[found.name], indent + "   "), '"""']
        lines[first:last] = [(indent + line.removeprefix(indent)).rstrip() for line in text]
    return {path: "\n".join(lines) + "\n" for path, lines in files.items()}


def page(parts: list[Part], rust: dict[str, Item]) -> str:
    c, python = c_items(), python_items()
    out = [
        "# Links: reference",
        "",
        "What programs see of links in Rust (`gambeson_link`), C (`gambeson/link.h`) and Python (`gambeson.link`);",
        "[links.md](../links.md) says what the words mean. Written by `make reference` from the comments in",
        "crates/gambeson-link, crates/gambeson-link-c and python/gambeson/link; links.toml joins them.",
        "",
        "In C every function but those that free returns a `gambeson_link_status`, and `gambeson_link_error()` has the",
        "sentence. In Python what fails raises a `gambeson.link.Error`.",
    ]
    for part in parts:
        out += ["", f"## {part.title}"]
        for row in part.rows:
            name = row.rust or (row.c + row.python)[0]
            out += ["", f"### {name}", ""]
            own = rust.get(row.rust)
            if own:
                text = spoken("\n\n".join(own.paragraphs), {})
                out += text.replace("# Errors\n", "Errors: ").splitlines()
            for language, there in (
                ("C", [c[name] for name in row.c]),
                ("Python", [python[name] for name in row.python]),
            ):
                said = there[0].paragraphs[1 if own else 0 :] if there else []
                if said:
                    out += ["", *f"In {language}: {said[0]}".splitlines()]
                    out += [line for paragraph in said[1:] for line in ["", *paragraph.splitlines()]]
            if row.why:
                out += ["", row.why]
            signatures = [("rust", [own] if own else [])]
            signatures += [("c", [c[name] for name in row.c]), ("python", [python[name] for name in row.python])]
            for language, there in signatures:
                if there:
                    out += ["", f"```{language}", *(item.signature for item in there), "```"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in out)) + "\n"


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    parts, rust = table(), rust_items()
    wrong = missing(parts)
    if not wrong:
        for make in (
            lambda: c_sources(words("c", parts, rust)),
            lambda: python_sources(words("python", parts, rust)),
            lambda: {PAGE: page(parts, rust)},
        ):
            for path, text in make().items():
                if path.exists() and path.read_text() == text:
                    continue
                if check:
                    wrong.append(f"{path.relative_to(ROOT)} is stale; run make reference")
                else:
                    path.write_text(text)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
