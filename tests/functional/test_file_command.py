"""`gambeson file`: sealed files as people look at them, seal, open and change them, and their mistakes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.mpis import clean_environment

SIZE = 3_000_000


class Person:
    """Somebody with a home and a key store."""

    def __init__(self, gambeson: Path, home: Path, store: bool = True) -> None:
        self.gambeson, self.home = gambeson, home
        home.mkdir()
        self.environment = clean_environment() | {"HOME": str(home), "GAMBESON_KEYS": str(home / "keys")}
        if store:
            self.does("key", "init", "--key-file")

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Without a terminal, so that nobody is asked."""
        return subprocess.run(
            [str(self.gambeson), *map(str, words)],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def does(self, *words: str | Path) -> bytes:
        done = self.run(*words)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, *words: str | Path) -> str:
        done = self.run("file", *words)
        assert done.returncode == status, done
        assert done.stderr.startswith(b"gambeson: "), done
        return done.stderr.decode()

    def info(self, file: str | Path) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.does("file", "info", "--json", file))
        return shown

    def verify(self, file: str | Path, status: int = 0) -> dict[str, Any]:
        done = self.run("file", "verify", "--json", file)
        assert done.returncode == status, done
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def files(self) -> list[str]:
        return sorted(path.name for path in self.home.iterdir())


@pytest.fixture
def ann(gambeson: Path, tmp_path: Path) -> Person:
    """With the labels clinical and trial, a file in clear, and that file sealed under both."""
    ann = Person(gambeson, tmp_path / "ann")
    ann.does("key", "create", "clinical")
    ann.does("key", "create", "trial")
    (ann.home / "plain").write_bytes(random.Random(5).randbytes(SIZE))
    (ann.home / "plain").chmod(0o640)
    ann.does("file", "seal", "plain", "sealed", "--label", "clinical", "--map", "trial:0:100000:0+1000,5000+1000")
    return ann


@pytest.fixture
def bob(gambeson: Path, tmp_path: Path, ann: Person) -> Person:
    """May read clinical."""
    bob = Person(gambeson, tmp_path / "bob")
    words = ann.home / "words"
    words.touch(0o600)
    words.write_text("words between us\n")
    ann.does("key", "export", "--read-only", "--export-passphrase-file", words, "for-bob", "clinical")
    bob.does("key", "import", "--export-passphrase-file", words, ann.home / "for-bob")
    return bob


def plain(person: Person) -> bytes:
    return (person.home / "plain").read_bytes()


def is_trial(at: int) -> bool:
    within = at % 100_000
    return within < 1000 or 5000 <= within < 6000


def test_what_is_sealed_is_opened_shown_and_compared(ann: Person) -> None:
    assert plain(ann)[:64] not in (ann.home / "sealed").read_bytes()
    assert (ann.home / "sealed").stat().st_mode & 0o777 == 0o640
    shown = ann.info("sealed")
    assert (shown["size"], shown["closed"], shown["believed"], shown["anchored"]) == (SIZE, True, True, True)
    regions = [(region["labels"], region["readable"], region["writable"]) for region in shown["regions"]]
    assert regions == [(["clinical"], True, True), (["trial"], True, True)]
    found = ann.verify("sealed")
    assert (found["findings"], found["not_checked"], found["bytes"]) == ([], 0, SIZE)
    assert found["rollback_covered"] and found["damaged_copies"] == []
    ann.does("file", "open", "sealed", "again")
    assert (ann.home / "again").read_bytes() == plain(ann)
    assert ann.does("file", "cat", "sealed") == plain(ann)
    assert ann.does("file", "cat", "sealed", "--offset", "99990", "--length", "70000") == plain(ann)[99_990:169_990]
    assert ann.does("file", "cat", "sealed", "--offset", "4M") == b""
    ann.does("file", "diff", "plain", "sealed")
    other = bytearray(plain(ann))
    other[2_000_001] ^= 1
    (ann.home / "other").write_bytes(other)
    done = ann.run("file", "diff", "sealed", "other")
    assert done.returncode == 1 and b"from byte 2000001 on" in done.stdout, done
    (ann.home / "other").write_bytes(plain(ann)[:1_000_000])
    done = ann.run("file", "diff", "other", "sealed")
    assert done.returncode == 1 and b"other ends at byte 1000000" in done.stdout, done


def test_who_has_one_label_sees_its_part(ann: Person, bob: Person) -> None:
    sealed = ann.home / "sealed"
    shown = bob.info(sealed)
    assert [(region["readable"], region["writable"]) for region in shown["regions"]] == [(True, False), (False, False)]
    assert not shown["anchored"] and "not seen this file" in shown["why_not_anchored"]
    found = bob.verify(sealed, status=75)
    assert found["findings"] == [] and found["not_checked"] > 0 and "trial" in found["missing_keys"][0]["why"]
    assert '"trial"' in bob.refuses(77, "open", sealed, "mine") and "mine" not in bob.files()
    bob.does("file", "open", "--leave-out", sealed, "mine")
    done = ann.run("file", "open", "--as-user", bob.home / "keys", "sealed", "bobs")
    assert done.returncode == 0 and b"zeros: " in done.stderr and b'"trial"' in done.stderr, done
    wanted = bytes(0 if is_trial(at) else byte for at, byte in enumerate(plain(ann)))
    assert (ann.home / "bobs").read_bytes() == (bob.home / "mine").read_bytes() == wanted
    # The key store takes note of it, so that a rollback is noticed from then on.
    assert b"taken note" in bob.does("file", "accept", sealed)
    assert bob.info(sealed)["anchored"]


def test_what_was_altered_is_listed_and_all_else_is_there(ann: Person) -> None:
    sealed = ann.home / "sealed"
    whole = sealed.read_bytes()
    altered = bytearray(whole)
    altered[len(altered) // 2] ^= 1
    sealed.write_bytes(altered)
    found = ann.verify("sealed", status=1)
    (finding,) = found["findings"]
    assert f"block {finding['block']}: " in finding["what"]
    assert finding["what"].startswith("sealed: region 0 ")
    before = ann.files()
    assert f"block {finding['block']}: " in ann.refuses(70, "open", "sealed", "again")
    assert ann.files() == before, "nothing half is left"
    assert "nothing was changed" in ann.refuses(70, "accept", "sealed") and sealed.read_bytes() == altered
    done = ann.run("file", "open", "--leave-out", "sealed", "again")
    assert done.returncode == 0 and f"block {finding['block']}: ".encode() in done.stderr, done
    block = range(finding["block"] << 16, (finding["block"] + 1) << 16)
    wanted = bytes(0 if at in block and not is_trial(at) else byte for at, byte in enumerate(plain(ann)))
    assert (ann.home / "again").read_bytes() == wanted
    for length in (len(whole) - 1, 100_000, 32 << 10, 5000, 1000):
        sealed.write_bytes(whole[:length])
        done = ann.run("file", "verify", "sealed")
        assert done.returncode in (1, 70), done
        assert ann.run("file", "cat", "sealed").returncode == 70


def test_an_old_version_is_taken_on_purpose_alone(ann: Person) -> None:
    sealed = ann.home / "sealed"
    shutil.copy(sealed, ann.home / "backup")
    ann.does("file", "rekey", "sealed")
    ann.does("file", "diff", "plain", "sealed")
    newest = ann.info("sealed")
    assert newest["id"] == ann.info("backup")["id"] and newest["regions"][0]["epoch"] == 2
    assert "leave --older away" in ann.refuses(64, "accept", "--older", "sealed")
    shutil.copy(ann.home / "backup", sealed)
    for words in (["cat", "sealed"], ["verify", "sealed"], ["accept", "sealed"]):
        assert "an old version of it was put back" in ann.refuses(70, *words)
    assert not ann.info("sealed")["believed"]
    ann.does("file", "accept", "--older", "sealed")
    shown = ann.info("sealed")
    assert shown["believed"] and shown["generation"] > newest["generation"]
    ann.does("file", "diff", "plain", "sealed")
    assert b"nothing to accept" in ann.does("file", "accept", "sealed")


def test_keys_and_maps_are_changed(ann: Person, bob: Person) -> None:
    ann.does("key", "rotate", "clinical")
    assert b"clinical version 2" in ann.does("file", "rewrap", "sealed")
    assert b"nothing to do" in ann.does("file", "rewrap", "sealed")
    assert "no label of it is known here" in bob.refuses(77, "cat", ann.home / "sealed")
    assert ann.verify("sealed")["findings"] == []
    shape = ["--block", "4KiB", "--slots", "2"]
    ann.does("file", "rekey", "sealed", "--label", "trial", "--map", "none:0:4096:0+16", *shape)
    shown = ann.info("sealed")
    assert [region["labels"] for region in shown["regions"]] == [["trial"], []] and shown["block"] == 4096
    assert shown["slots"] == 2 and b"blocks of 4 KiB, two slots each" in ann.does("file", "info", "sealed")
    assert ann.verify("sealed")["plain_regions"] == [1]
    assert plain(ann)[:16] in (ann.home / "sealed").read_bytes()
    ann.does("file", "diff", "plain", "sealed")
    ann.does("file", "open", "sealed", "again")
    assert (ann.home / "again").read_bytes() == plain(ann)


def test_a_detached_file_keeps_its_data_where_it_was(ann: Person) -> None:
    mapped = ["--label", "clinical", "--map", "trial:0:1MiB:0+128KiB"]
    ann.does("file", "seal", "plain", "apart", *mapped, "--detached", "--block", "4KiB")
    data, beside = ann.home / "apart", ann.home / "apart.gambeson"
    assert data.stat().st_size == SIZE and plain(ann)[:64] not in data.read_bytes()
    assert data.stat().st_mode & 0o777 == beside.stat().st_mode & 0o777 == 0o640
    assert beside.read_bytes().startswith(b"GMBSNFIL") and beside.stat().st_size < SIZE / 4
    shown = ann.info("apart")
    assert shown["sidecar"] == "apart.gambeson" and ann.info("sealed")["sidecar"] is None
    assert b"apart.gambeson, which has all but the data" in ann.does("file", "info", "apart")
    assert ann.verify("apart")["findings"] == [] and ann.verify("apart")["bytes"] == SIZE
    assert ann.does("file", "cat", "apart", "--offset", "99990", "--length", "70000") == plain(ann)[99_990:169_990]
    ann.does("file", "diff", "plain", "apart")
    ann.does("file", "diff", "sealed", "apart")
    # All that changes it keeps it so.
    ann.does("key", "rotate", "clinical")
    ann.does("file", "rewrap", "apart")
    before = data.read_bytes()
    ann.does("file", "rekey", "apart")
    assert data.stat().st_size == SIZE and data.read_bytes() != before and ann.verify("apart")["findings"] == []
    assert b"nothing to accept" in ann.does("file", "accept", "apart")
    # A block of the old data put back, a bit, and all of it.
    with data.open("r+b") as file:
        file.seek(40 << 10)
        file.write(before[40 << 10 : 44 << 10])
    assert [finding["block"] for finding in ann.verify("apart", status=1)["findings"]] == [10]
    data.write_bytes(before)
    assert len(ann.verify("apart", status=1)["findings"]) == -(-SIZE // 4096)
    assert "it is not what was written" in ann.refuses(70, "open", "apart", "again")


def test_a_sidecar_and_its_data_stay_together(ann: Person) -> None:
    apart = ["--label", "clinical", "--detached"]
    ann.does("file", "seal", "plain", "apart", *apart)
    data, beside = ann.home / "apart", ann.home / "apart.gambeson"
    before = ann.files()
    for status, said, words in [
        (64, "apart.gambeson is there already", ["seal", "plain", "apart.gambeson", "--label", "clinical"]),
        (64, "is there already", ["seal", "plain", "apart", *apart]),
        (65, "is sealed already", ["seal", "apart", "new", *apart]),
        (65, "it is the sidecar of a detached file", ["cat", "apart.gambeson"]),
        (65, "it is the sidecar of a detached file", ["info", "apart.gambeson"]),
        (64, "one slot for each block", ["rekey", "apart", "--slots", "2"]),
        (64, "one slot for each block", ["seal", "plain", "new", *apart, "--slots", "2"]),
    ]:
        assert said in ann.refuses(status, *words)
    assert ann.files() == before
    data.rename(ann.home / "away")
    assert "its sidecar apart.gambeson is there and its data is gone" in ann.refuses(69, "verify", "apart")
    assert "apart.gambeson is there already" in ann.refuses(64, "seal", "plain", "apart", "--label", "clinical")
    (ann.home / "away").rename(data)
    beside.rename(ann.home / "away")
    assert "or its sidecar, are gone" in ann.refuses(65, "verify", "apart")
    # A sidecar of nothing at all, which is no file in clear either.
    beside.write_bytes(b"something else")
    assert "header in its sidecar are gone" in ann.refuses(65, "diff", "plain", "apart")
    (ann.home / "away").rename(beside)
    ann.does("file", "diff", "plain", "apart")
    # By a link, and from one kind to the other and back.
    (ann.home / "link").symlink_to("apart")
    ann.does("file", "diff", "plain", "link")
    ann.does("file", "seal", "plain", "apart", "--label", "clinical", "--force")
    assert not beside.exists() and ann.info("apart")["sidecar"] is None
    ann.does("file", "seal", "plain", "apart", *apart, "--force")
    ann.does("file", "diff", "plain", "apart")
    ann.does("file", "open", "sealed", "apart", "--force")
    assert not beside.exists() and data.read_bytes() == plain(ann)


def test_mistakes_are_answered_and_change_nothing(gambeson: Path, tmp_path: Path, ann: Person) -> None:
    before, sealed = ann.files(), (ann.home / "sealed").read_bytes()
    seal = ["seal", "plain", "new", "--label"]
    for status, said, words in [
        (64, "is there already", ["seal", "plain", "sealed", "--label", "clinical"]),
        (64, "is there already", ["open", "sealed", "plain"]),
        (69, 'no label "clinica"', [*seal, "clinica"]),
        (64, "nothing of the file would be sealed", [*seal, "none"]),
        (64, "belong to region 1 already", [*seal, "clinical", "--map", "trial:0:64:0+8", "--map", "none:0:64:4+8"]),
        (65, "is sealed already", ["seal", "sealed", "new", "--label", "clinical"]),
        (65, "is no sealed file", ["open", "plain", "new"]),
        (65, "is no sealed file", ["info", "plain"]),
        (65, "is no sealed file", ["rekey", "plain"]),
        (69, "No such file", ["verify", "nowhere"]),
        (64, "is no regular file", ["cat", "."]),
    ]:
        assert said in ann.refuses(status, *words)
    for words in [[*seal, "clinical", "--map", "trial:0:64"], [*seal, "clinical", "--block", "5000"]]:
        assert ann.run("file", *words).returncode == 64
    assert ann.files() == before and (ann.home / "sealed").read_bytes() == sealed
    # Nobody's keys: what needs none is said all the same.
    carl = Person(gambeson, tmp_path / "carl", store=False)
    assert "gambeson key init" in carl.refuses(69, "cat", ann.home / "sealed")
    shown = carl.info(ann.home / "sealed")
    assert not shown["believed"] and "gambeson key init" in shown["why_not_believed"]
    assert [region["labels"] for region in shown["regions"]] == [["clinical"], ["trial"]]
    assert b"clinical" in carl.does("file", "info", ann.home / "sealed")


def test_empty_files_are_sealed_too(ann: Person) -> None:
    (ann.home / "empty").touch()
    ann.does("file", "seal", "empty", "sealed", "--label", "clinical", "--force")
    assert ann.info("sealed")["size"] == 0 and ann.verify("sealed")["findings"] == []
    ann.does("file", "open", "sealed", "again")
    assert (ann.home / "again").read_bytes() == b""


def test_a_sealed_file_is_marked_where_there_is_room(ann: Person) -> None:
    in_clear, sealed = ann.home / "plain", ann.home / "sealed"
    try:
        os.setxattr(in_clear, "user.gambeson", b"1")
    except OSError:
        pytest.skip("the folder for tests has no extended attributes")
    ann.does("key", "rotate", "clinical")
    for change in ([], ["rewrap"], ["rekey"]):
        if change:
            ann.does("file", *change, "sealed")
        assert os.getxattr(sealed, "user.gambeson") == b"1"
    ann.does("file", "seal", "plain", "apart", "--label", "clinical", "--detached")
    assert [os.getxattr(ann.home / name, "user.gambeson") for name in ("apart", "apart.gambeson")] == [b"1"] * 2
    # Nobody goes by it.
    os.removexattr(sealed, "user.gambeson")
    assert ann.verify("sealed")["findings"] == []
    ann.refuses(65, "info", "plain")
