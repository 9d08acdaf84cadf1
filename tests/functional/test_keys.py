"""The key store: labels as people make, hand over and use them, their mistakes, and jobs that get them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import Mpi, clean_environment

from vectors.key_file import EXPORT, read_key_file

PASSPHRASE = "correct horse battery"
QUESTION = re.compile(rb"(assphrase of [^\n]*|The same again): \Z|\[y/N\] \Z")


class Person:
    """Somebody with a home, who calls `gambeson key`."""

    def __init__(self, gambeson: Path, home: Path) -> None:
        self.gambeson, self.home = gambeson, home
        home.mkdir(exist_ok=True)
        self.store = home / ".local/share/gambeson/keys"
        self.environment = clean_environment() | {"HOME": str(home)}
        self.environment.pop("XDG_DATA_HOME", None)

    def passphrase(self, name: str, text: str = PASSPHRASE) -> str:
        path = self.home / name
        path.touch(0o600)
        path.write_text(text + "\n")
        return str(path)

    def __call__(self, *words: str, said: str | None = None) -> subprocess.CompletedProcess[str]:
        """Without a terminal, so that nobody is asked."""
        return subprocess.run(
            [str(self.gambeson), "key", *words],
            cwd=self.home,
            env=self.environment,
            input=said,
            stdin=subprocess.DEVNULL if said is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def does(self, *words: str, said: str | None = None) -> str:
        done = self(*words, said=said)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, *words: str) -> str:
        done = self(*words)
        assert done.returncode == status and done.stdout == "", done
        assert done.stderr.startswith("gambeson: ") and done.stderr.count("\n") == 1, done
        return done.stderr

    def labels(self) -> dict[str, tuple[int, bool]]:
        """Version and whether it may be written with, by label."""
        labels = json.loads(self.does("list", "--json"))["labels"]
        return {label["label"]: (label["version"], label["may_write"]) for label in labels}

    def types(self, answers: list[str], *words: str) -> tuple[int, str]:
        """At a terminal: waits for each question, and answers it. The status, and all that the terminal showed."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.gambeson, [str(self.gambeson), "key", *words], self.environment)
        shown = b""
        for answer in answers:
            while not QUESTION.search(shown):
                shown += os.read(terminal, 1000)
            os.write(terminal, answer.encode() + b"\n")
            shown += b"\n"
        try:
            while more := os.read(terminal, 1000):
                shown += more
        except OSError:
            pass  # what a terminal says when its last process has gone
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), shown.decode().replace("\r", "")


@pytest.fixture
def ann(gambeson: Path, tmp_path: Path) -> Person:
    """With a store that has a key file and the label clinical."""
    ann = Person(gambeson, tmp_path / "ann")
    ann.does("init", "--key-file")
    ann.does("create", "clinical")
    return ann


@pytest.fixture
def bob(gambeson: Path, tmp_path: Path) -> Person:
    """With a store that has a key file and no labels."""
    bob = Person(gambeson, tmp_path / "bob")
    bob.does("init", "--key-file")
    return bob


def hand_over(giver: Person, *words: str) -> tuple[str, str]:
    """An export, and the file with its passphrase."""
    passphrase = giver.passphrase("between-us", "words between us")
    export = giver.home / "export.keys"
    export.unlink(missing_ok=True)
    giver.does("export", "--export-passphrase-file", passphrase, str(export), *words)
    assert export.stat().st_mode & 0o777 == 0o600
    return str(export), passphrase


def test_a_label_is_made_shown_and_rotated(ann: Person) -> None:
    ann.does("create", "open.data", "--expires", "2999-06-30")
    said = json.loads(ann.does("list", "--json"))
    assert said["store"] == str(ann.store)
    assert [label["expires"] for label in said["labels"]] == [None, "2999-07-01T00:00:00Z"]
    assert "version 2 for new files" in ann.does("rotate", "clinical")
    shown = json.loads(ann.does("show", "clinical", "--json"))["versions"]
    assert [version["version"] for version in shown] == [1, 2]
    assert shown[0]["verifying_key"] != shown[1]["verifying_key"]
    text = ann.does("show", "clinical")
    assert f"verifying key  {shown[1]['verifying_key']}\n" in text and "may            read+write\n" in text
    listed = ann.does("list").splitlines()
    assert listed[0].split() == ["LABEL", "VERSION", "MAY", "LIFETIME"]
    assert listed[1].split()[:3] == ["clinical", "2", "read+write"]
    ann.does("delete", "--yes", "open.data")
    assert list(ann.labels()) == ["clinical"]


def test_a_collaborator_reads_until_an_export_says_more(ann: Person, bob: Person) -> None:
    export, passphrase = hand_over(ann, "--read-only", "--expires", "2999-06-30", "clinical")
    said = bob.does("import", "--export-passphrase-file", passphrase, export)
    assert said == 'took in "clinical" up to version 1, for reading, until 2999-07-01T00:00:00Z\n'
    assert bob.labels() == {"clinical": (1, False)}
    for words in (("rotate", "clinical"), ("expire", "clinical", "--on", "never")):
        assert 'holds label "clinical" for reading alone' in bob.refuses(77, *words)
    mine, theirs = (json.loads(who.does("show", "clinical", "--json"))["versions"][0] for who in (ann, bob))
    assert mine["verifying_key"] == theirs["verifying_key"]

    ann.does("rotate", "clinical")
    export, passphrase = hand_over(ann, "clinical")
    taking = ("import", "--export-passphrase-file", passphrase, export)
    refused = bob(*taking)
    assert refused.returncode == 64 and 'label "clinical" is here already' in refused.stderr, refused
    assert bob.labels() == {"clinical": (1, False)}
    bob.does(*taking, "--yes")
    assert bob.labels() == {"clinical": (2, True)}
    assert "here already, with all that the file has" in bob.does(*taking)


def test_an_export_is_what_the_second_implementation_reads(ann: Person) -> None:
    ann.does("rotate", "clinical", "--expires", "2999-06-30")
    shown = json.loads(ann.does("show", "clinical", "--json"))["versions"]
    for words, has_seed in ((("clinical",), True), (("--read-only", "clinical"), False)):
        export, _ = hand_over(ann, *words)
        labels = read_key_file(Path(export).read_bytes(), "words between us", EXPORT)
        assert [label["name"] for label in labels] == ["clinical"]
        versions = labels[0]["versions"]
        assert [v["verifying_key"] for v in versions] == [v["verifying_key"] for v in shown]
        assert [v["expires"] for v in versions] == [None, int(datetime(2999, 7, 1, tzinfo=UTC).timestamp())]
        assert all((v["seed"] is not None) == has_seed for v in versions)


def test_somebody_elses_label_of_the_same_name_replaces_none_that_is_newer(ann: Person, bob: Person) -> None:
    export, passphrase = hand_over(ann, "clinical")
    time.sleep(1.1)
    bob.does("create", "clinical")
    before = bob.does("show", "clinical")
    taking = ("import", "--yes", "--export-passphrase-file", passphrase, export)
    assert "whose keys are newer, so it stays" in bob.refuses(70, *taking)
    assert bob.does("show", "clinical") == before
    time.sleep(1.1)
    ann.does("rotate", "clinical")
    export, passphrase = hand_over(ann, "clinical")
    # Without --yes nobody was asked.
    refused = bob(*(word for word in taking if word != "--yes"))
    assert refused.returncode == 64 and "nothing was taken in" in refused.stderr, refused
    assert bob.does("show", "clinical") == before
    bob.does(*taking)
    assert bob.labels() == {"clinical": (2, True)}


def test_a_store_under_a_passphrase_opens_with_it_alone(gambeson: Path, tmp_path: Path) -> None:
    carl = Person(gambeson, tmp_path / "carl")
    right, wrong = carl.passphrase("right"), carl.passphrase("wrong", "another horse")
    assert "name a file with it: --passphrase-file FILE" in carl.refuses(64, "init")
    short = carl.refuses(64, "init", "--passphrase-file", carl.passphrase("short", "secret"))
    assert "fewer than 8 bytes" in short
    carl.does("init", "--passphrase-file", right)
    assert carl.store.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in carl.store.iterdir()} == {"store": 0o600, "lock": 0o600}
    assert "are locked; give its passphrase" in carl.refuses(77, "list")
    assert "the passphrase is not that of the key store" in carl.refuses(77, "list", "--passphrase-file", wrong)
    carl.does("create", "clinical", "--passphrase-file", right)
    carl.does("list", "--passphrase-file", "-", said=PASSPHRASE + "\n")
    carl.does("passphrase", "--passphrase-file", right, "--new-passphrase-file", wrong)
    carl.refuses(77, "list", "--passphrase-file", right)
    assert "clinical" in carl.does("list", "--passphrase-file", wrong)
    stored = (carl.store / "store").read_bytes()
    assert b"clinical" not in stored


def test_a_passphrase_is_typed_and_not_shown(gambeson: Path, tmp_path: Path) -> None:
    dora = Person(gambeson, tmp_path / "dora")
    status, shown = dora.types([PASSPHRASE, "something else"], "init")
    assert status == 64 and "the two passphrases are not the same" in shown
    assert not (dora.store / "store").exists()
    status, shown = dora.types([PASSPHRASE, PASSPHRASE], "init")
    assert status == 0 and "made the key store" in shown
    status, more = dora.types(["wrong horse", PASSPHRASE], "create", "clinical")
    assert status == 0 and "the passphrase is not that of" in more and 'made label "clinical"' in more
    status, last = dora.types(["wrong horse"] * 3, "list")
    assert status == 77 and last.count("Passphrase of") == 3
    assert "horse" not in shown + more + last
    status, shown = dora.types([PASSPHRASE, "n"], "delete", "clinical")
    assert status == 0 and 'label "clinical" stays' in shown
    status, shown = dora.types([PASSPHRASE, "y"], "delete", "clinical")
    assert status == 0 and 'label "clinical" is gone' in shown


def test_an_unlocked_store_opens_for_the_session_until_it_is_locked(gambeson: Path, tmp_path: Path) -> None:
    emma = Person(gambeson, tmp_path / "emma")
    right = emma.passphrase("right")
    emma.does("init", "--passphrase-file", right)
    emma.refuses(77, "unlock")
    emma.refuses(77, "list")
    unlocked = emma("unlock", "--for", "1", "--passphrase-file", right)
    if unlocked.returncode == 71:
        assert "the kernel's keyring" in unlocked.stderr
        pytest.skip("this machine lets nobody use the kernel's keyring")
    assert unlocked.returncode == 0, unlocked
    try:
        emma.does("create", "clinical")
        assert emma.labels() == {"clinical": (1, True)}
    finally:
        assert " is locked\n" in emma.does("lock")
    emma.refuses(77, "list")
    assert "is locked, as it was" in emma.does("lock")


def test_what_has_expired_says_so_and_is_extended_by_its_owner(ann: Person) -> None:
    ann.does("expire", "clinical", "--on", "now")
    assert json.loads(ann.does("list", "--json"))["labels"][0]["expired"] is True
    assert "expired on 2" in ann.does("list")
    ann.does("expire", "clinical", "--version", "1", "--on", "2999-06-30")
    assert "until 2999-07-01T00:00:00Z" in ann.does("list")
    for words in (("create", "x", "--expires", "2020-01-01"), ("expire", "clinical", "--on", "june")):
        refused = ann(*words)
        assert refused.returncode == 64 and "invalid value" in refused.stderr


def test_mistakes_get_sentences(gambeson: Path, ann: Person, tmp_path: Path) -> None:
    nobody = Person(gambeson, tmp_path / "nobody")
    for command in ("list", "create clinical", "lock", "unlock"):
        assert "there is no key store" in nobody.refuses(69, *command.split())
    assert "there is a key store" in ann.refuses(64, "init", "--key-file")
    assert 'has a label "clinical" already' in ann.refuses(64, "create", "clinical")
    for name in ("my label", "none", "a/b", "x" * 65, ""):
        assert "is no name for a label" in ann.refuses(64, "create", name)
    for words in (("rotate", "clinica"), ("show", "clinica"), ("delete", "--yes", "clinica")):
        assert 'has no label "clinica"' in ann.refuses(69, *words)
    assert "not version 7 of it" in ann.refuses(69, "expire", "clinical", "--version", "7", "--on", "never")
    assert "cannot be locked" in ann.refuses(64, "lock")
    passphrase = ann.passphrase("between-us")
    exporting = ("export", "--export-passphrase-file", passphrase)
    assert "is there already" in ann.refuses(64, *exporting, passphrase, "clinical")
    assert 'has no label "clinica"' in ann.refuses(69, *exporting, "new.keys", "clinica")
    assert not (ann.home / "new.keys").exists()
    importing = ("import", "--export-passphrase-file", passphrase)
    assert "there is no file nowhere.keys" in ann.refuses(69, *importing, "nowhere.keys")
    assert "it does not begin as" in ann.refuses(65, *importing, passphrase)
    assert ann.labels() == {"clinical": (1, True)}


def test_what_others_could_read_is_refused(ann: Person) -> None:
    passphrase = Path(ann.passphrase("between-us"))
    passphrase.chmod(0o644)
    refused = ann.refuses(70, "export", "--export-passphrase-file", str(passphrase), "x.keys", "clinical")
    assert "others may read or write it (mode 644)" in refused
    for path, mode in ((ann.store, 0o700), (ann.store / "store", 0o600), (ann.store / "master-key", 0o600)):
        path.chmod(mode | 0o044)
        assert "chmod" in ann.refuses(70, "list")
        path.chmod(mode)
    (ann.store / "store").write_bytes((ann.store / "store").read_bytes()[:-1] + b"x")
    assert "was altered or is damaged" in ann.refuses(70, "list")


def test_a_killed_writer_loses_nothing(ann: Person) -> None:
    """Kills `create` at moments all over its short life: every label that was made is there, and the store opens."""
    made = {"clinical"}
    for attempt in range(25):
        label = f"label-{attempt}"
        command = [str(ann.gambeson), "key", "create", label]
        with subprocess.Popen(command, env=ann.environment, stdout=subprocess.PIPE, text=True) as creating:
            assert creating.stdout is not None
            time.sleep(attempt * 0.0008)
            creating.kill()
            if creating.stdout.read():
                made.add(label)
    assert made <= set(ann.labels())


def job(person: Person, mpi: Mpi, options: list[str], *ranks: list[str], **more: str) -> Job:
    """A job of this person's: one rank for each command, without a terminal."""
    words = [word for rank in ranks for word in (":", "-n", "1", *rank)][1:]
    command = ["setsid", "-w", str(person.gambeson), "run", *options, "--", *mpi.mpiexec, *words]
    return run_marked(command, env={**person.environment, **mpi.common, **more}, timeout=60)


def stores_and_labels(output: str) -> list[tuple[str, list[str]]]:
    """What `key list --json` said in each rank, a line for each, in the order of the stores."""
    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted((rank["store"], [label["label"] for label in rank["labels"]]) for rank in said)


def test_two_ranks_of_a_job_have_two_roles(ann: Person, bob: Person, mpi: Mpi) -> None:
    bob.does("create", "research")
    # In one line: launchers mix the lines of ranks.
    listing = ["sh", "-c", "echo $($0 key list --json)", str(ann.gambeson)]
    as_bob = ["env", f"GAMBESON_KEYS={bob.store}", *listing]
    expected = [(str(ann.store), ["clinical"]), (str(bob.store), ["research"])]
    assert stores_and_labels(job(ann, mpi, [], listing, as_bob).check().stdout) == expected
    # Whoever names the store that the launcher opened has what it opened.
    named = job(ann, mpi, [], listing, as_bob, GAMBESON_KEYS=str(ann.store)).check()
    assert stores_and_labels(named.stdout) == expected


@pytest.mark.mpis("mpich")
def test_a_job_gets_the_keys_of_a_store_that_its_launcher_opened(gambeson: Path, tmp_path: Path, mpi: Mpi) -> None:
    fay = Person(gambeson, tmp_path / "fay")
    right, wrong = fay.passphrase("right"), fay.passphrase("wrong", "another horse")
    fay.does("init", "--passphrase-file", right)
    fay.does("create", "clinical", "--passphrase-file", right)
    look = "find $GAMBESON_JOB -type f -exec grep -l clinical {} +; env | grep -c horse; echo $($0 key list --json)"
    rank = ["sh", "-c", look, str(gambeson)]
    opened = job(fay, mpi, ["--passphrase-file", right], rank).check()
    assert stores_and_labels(opened.stdout) == [(str(fay.store), ["clinical"])]
    assert opened.stdout.startswith("0\n"), opened.describe()
    # Nobody gives the passphrase: the job runs, and the rank that wants keys is told.
    locked = job(fay, mpi, [], [*rank[:2], "exec $0 key list", *rank[3:]])
    assert locked.status == 77 and "this job's processes get no keys for sealed files" in locked.stderr
    assert locked.stderr.count("are locked; give its passphrase") == 2, locked.describe()
    refused = job(fay, mpi, ["--passphrase-file", wrong], rank)
    assert refused.status == 77 and "the passphrase is not that of" in refused.stderr and not refused.stdout
    nowhere = job(fay, mpi, [], rank, GAMBESON_KEYS=str(tmp_path / "nowhere"))
    assert nowhere.status == 69 and "there is no key store" in nowhere.stderr and not nowhere.stdout
