"""The key service: labels that people grant each other, their mistakes, and what stands in its log."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from harness.keyd import KeySite, Person, free_port

USAGE, UNAVAILABLE, REFUSED, NOT_PERMITTED, POLICY = 64, 69, 70, 77, 78
TEXT = "Ann's patients\n" * 1000


@pytest.fixture
def site(gambeson: Path, tmp_path: Path) -> KeySite:
    made = KeySite(gambeson, tmp_path)
    said = made.init()
    assert "gambeson keyd serve" in said and f"keyd://{made.host}" in said, said
    return made


@pytest.fixture
def served(site: KeySite) -> Iterator[KeySite]:
    site.rules('officers = ["user:olga"]\n')
    with site.serving():
        yield site


@pytest.fixture
def ann(served: KeySite) -> Person:
    """Has made the label clinical."""
    ann = served.person("ann")
    ann.does("key", "create", "clinical")
    return ann


@pytest.fixture
def bob(served: KeySite) -> Person:
    return served.person("bob")


def sealed(person: Person, name: str = "patients") -> Path:
    """A file under clinical, which others may read."""
    path = person.home / f"{name}.sealed"
    plain = person.home / name
    plain.write_text(TEXT)
    person.does("file", "seal", "--label", "clinical", str(plain), str(path))
    return path


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_label_is_granted_used_and_revoked(ann: Person, bob: Person) -> None:
    file = sealed(ann)
    refused = bob.refuses(NOT_PERMITTED, "key", "show", "clinical")
    assert 'no label "clinical" is known to you there' in refused and "gambeson key grant clinical user:bob" in refused
    assert bob.labels() == {}
    assert bob("file", "cat", str(file)).returncode != 0

    said = ann.does("key", "grant", "clinical", "bob", "--read", "--until", "2999-06-30")
    assert said == 'user:bob may read label "clinical", until 2999-07-01T00:00:00Z\n'
    assert bob.labels() == {"clinical": 1}
    assert bob.does("file", "cat", str(file)) == TEXT
    shown = json.loads(bob.does("key", "show", "clinical", "--json"))
    assert shown["grants"] is None and shown["versions"][0]["rights"] == {
        "read": True,
        "write": False,
        "administer": False,
    }
    # Who may read may neither write, nor rotate, nor grant.
    assert "user:bob may read label" in bob.refuses(NOT_PERMITTED, "key", "rotate", "clinical")
    assert "and not administer it" in bob.refuses(NOT_PERMITTED, "key", "grant", "clinical", "carl", "--read")
    plain = bob.home / "own"
    plain.write_text(TEXT)
    assert bob("file", "seal", "--label", "clinical", str(plain), str(plain) + ".sealed").returncode == NOT_PERMITTED

    assert "version 2 for new files" in ann.does("key", "rotate", "clinical")
    assert bob.labels() == {"clinical": 2}
    said = ann.does("key", "revoke", "clinical", "bob")
    assert "user:bob gets nothing" in said and "gambeson key rotate clinical" in said
    assert bob.labels() == {}
    assert bob("file", "cat", str(file)).returncode != 0
    assert ann.does("file", "cat", str(file)) == TEXT

    events = [(row["event"], row["who"]["roles"][-1]) for row in ann.audit("clinical")]
    assert ("create", "user:ann") in events and ("grant", "user:ann") in events and ("revoke", "user:ann") in events
    assert ("get", "user:bob") in events and ("rotate", "user:ann") in events
    refusals = [row for row in ann.audit("clinical") if row["event"] == "refusal"]
    assert [row["who"]["name"] for row in refusals if row["about"]["wanted"] == "show"] == ["user:bob"]
    assert {row["about"]["wanted"] for row in refusals} >= {"show", "rotate", "grant"}
    assert all(row["about"]["reason"] for row in refusals)


def test_who_tries_a_file_is_in_the_log_and_nothing_else_is_asked_for(ann: Person, bob: Person) -> None:
    """The labels of a file are asked for by name: the service decides, words and keeps what it refuses."""
    ann.does("key", "create", "other")
    file = sealed(ann)
    plain = bob.home / "own"
    plain.write_text(TEXT)

    def rows(event: str, label: str = "clinical") -> list[tuple[str, str]]:
        found = [row for row in ann.audit(label) if row["event"] == event]
        return [(row["who"]["name"], row["about"].get("wanted", row["about"].get("may"))) for row in found]

    assert rows("get") == [("user:ann", "write")], "for the file that was sealed"
    assert ann.does("file", "cat", str(file)) == TEXT
    assert ann("file", "cat", str(file) + ".gone").returncode == UNAVAILABLE
    assert rows("get") == [("user:ann", "write")] * 2 and rows("get", "other") == []

    seal = ["file", "seal", "--label", "clinical", str(plain), str(plain) + ".sealed"]
    for words in (["file", "cat", str(file)], ["file", "verify", str(file)], ["file", "rekey", str(file)], seal):
        said = bob.refuses(NOT_PERMITTED, *words)
        assert "gambeson key grant clinical user:bob --" in said and "nobody granted it" in said
    bob.does("file", "info", str(file))
    refused = [("user:bob", wanted) for wanted in ("read", "read", "read", "write", "read")]
    assert rows("refusal") == refused
    # Who may read and wants to write is refused by the service, too, and his reading is no attempt to write.
    ann.does("key", "grant", "clinical", "bob", "--read")
    assert bob.does("file", "cat", str(file)) == TEXT
    assert rows("refusal") == refused
    for words in (seal, ["file", "rekey", str(file)]):
        assert "may read label" in bob.refuses(NOT_PERMITTED, *words)
    ann.does("key", "rotate", "clinical")
    assert "may read label" in bob.refuses(NOT_PERMITTED, "file", "rewrap", str(file))
    assert rows("refusal") == refused + [("user:bob", "write")] * 3
    # A version that is over is named, and so is what extends it.
    ann.does("key", "expire", "clinical", "--version", "1", "--on", "now")
    said = bob.refuses(NOT_PERMITTED, "file", "cat", str(file))
    assert "version 1 of label" in said and "gambeson key expire clinical --version 1 --on never" in said
    assert "expired on" in [row for row in ann.audit("clinical") if row["event"] == "refusal"][-1]["about"]["reason"]


def test_a_grant_ends_by_itself(ann: Person, bob: Person) -> None:
    ann.does("key", "grant", "clinical", "bob", "--write", "--until", moment(4))
    assert bob.labels() == {"clinical": 1}
    file = sealed(bob)
    assert ann.does("file", "cat", str(file)) == TEXT
    deadline = time.monotonic() + 15
    while bob.labels():
        assert time.monotonic() < deadline
        time.sleep(0.3)
    words = ["key", "export", "--export-passphrase-file", bob.secret("words", "words between us"), "out", "clinical"]
    said = bob.refuses(NOT_PERMITTED, *words)
    assert 'what was granted of label "clinical" to user:bob ended on' in said
    ann.does("key", "expire", "clinical", "--on", "now")
    words[3] = ann.secret("words", "words between us")
    assert "expired" in ann.refuses(NOT_PERMITTED, *words)
    # What is advised works, and nothing else is: of a label of one's own that is over, too.
    seal = ["file", "seal", "--label", "clinical", "--force", str(bob.home / "patients"), str(ann.home / "again")]
    for tried in (seal, ["file", "cat", str(file)]):
        said = ann.refuses(NOT_PERMITTED, *tried)
        assert "expired on" in said and "gambeson key expire clinical --on never" in said
    ann.does("key", "expire", "clinical", "--on", "never")
    assert ann.does("file", "cat", str(file)) == TEXT


def test_everybody_may_and_officers_see_without_reading(served: KeySite, ann: Person, bob: Person) -> None:
    olga = served.person("olga")
    ann.does("key", "grant", "clinical", "user:*", "--read")
    assert bob.labels() == olga.labels() == {"clinical": 1}
    # Who loses his own grant reads on by that to all, and all or none lose theirs.
    ann.does("key", "grant", "clinical", "bob", "olga", "--write")
    said = ann.refuses(USAGE, "key", "revoke", "clinical", "nobody1", "bob")
    assert "user:nobody1 has no grant" in said and "nobody's was taken away" in said
    said = ann.does("key", "revoke", "clinical", "bob", "olga", "bob")
    assert said.count("but they still may read by the grant to user:*") == 2 and "gets nothing" not in said
    assert bob.labels() == {"clinical": 1}
    said = ann.does("key", "revoke", "clinical", "user:*")
    assert "but some of them still may read+write+administer by the grant to user:ann" in said
    assert bob.labels() == {}
    # She sees it, and gets no key of it.
    assert olga.labels() == {"clinical": 1}
    assert "as an officer" in olga.does("key", "show", "clinical")
    words = ["key", "export", "--read-only", "--export-passphrase-file", olga.secret("words", "words between us")]
    assert 'no label "clinical"' in olga.refuses(NOT_PERMITTED, *words, "out", "clinical")
    # Who administers may revoke, and not read either.
    ann.does("key", "grant", "clinical", "olga", "--administer")
    assert "may administer label" in olga.refuses(NOT_PERMITTED, *words, "out", "clinical")
    ann.does("key", "grant", "clinical", "bob", "--read")
    olga.does("key", "revoke", "clinical", "bob")
    assert bob.labels() == {}
    # The whole log, and its verification, are for officers.
    events = {row["event"] for row in olga.audit()}
    assert {"create", "grant", "revoke", "refusal"} <= events
    numbers = [row["number"] for row in olga.audit()]
    assert numbers == list(range(1, len(numbers) + 1))
    said = olga.does("key", "audit", "--verify")
    tail = said.split("ends with ")[1].split()[0]
    ann.does("key", "rotate", "clinical")
    assert "as they were written" in olga.does("key", "audit", "--verify", "--since", tail)
    other = tail[:-1] + ("0" if tail[-1] != "0" else "1")
    assert "never ended with" in olga.refuses(REFUSED, "key", "audit", "--verify", "--since", other)
    assert "keyd.toml does not name user:ann" in ann.refuses(NOT_PERMITTED, "key", "audit")
    assert "keyd.toml does not name user:bob" in bob.refuses(NOT_PERMITTED, "key", "audit", "--verify")


def test_whose_administrator_has_left(served: KeySite, ann: Person, bob: Person) -> None:
    """Officers take away and give nothing; the administrator of the service's host names another for the label."""
    olga, administer = served.person("olga"), served.keyd("administer")
    ann.does("key", "grant", "clinical", "bob", "--write")
    bob.refuses(NOT_PERMITTED, "key", "revoke", "clinical", "ann")
    olga.does("key", "revoke", "clinical", "bob")
    assert bob.labels() == {}
    olga.does("key", "expire", "clinical", "--on", "2999-01-01")
    assert "gives nothing" in olga.refuses(NOT_PERMITTED, "key", "expire", "clinical", "--on", "never")
    olga.refuses(NOT_PERMITTED, "key", "grant", "clinical", "olga", "--read")
    said = olga.refuses(USAGE, "key", "revoke", "clinical", "ann")
    assert "gambeson keyd administer clinical WHO" in said
    assert "there is no label" in served.administrator.refuses(USAGE, *administer, "other", "bob")
    assert "is not one" in served.administrator.refuses(USAGE, *administer, "clinical", "user:*")
    assert served.administrator.does(*administer, "clinical", "bob") == (
        'user:bob may administer label "clinical", without end\n'
    )
    row = bob.audit("clinical")[-1]
    assert row["event"] == "grant" and row["who"]["name"] == f"uid {os.getuid()}" and row["about"]["to"] == "user:bob"
    olga.does("key", "revoke", "clinical", "ann")
    bob.does("key", "expire", "clinical", "--on", "never")
    assert ann.labels() == {} and "may administer label" in bob.refuses(
        NOT_PERMITTED, "key", "export-wrapped", "--to", "9" * 64, "out", "clinical"
    )


def test_mistakes_are_said(served: KeySite, ann: Person, bob: Person) -> None:
    assert "is no name for a label" in ann.refuses(USAGE, "key", "create", "none")
    assert "already" in bob.refuses(USAGE, "key", "create", "clinical")
    assert "names nobody" in ann("key", "grant", "clinical", "ann b", "--read").stderr
    assert "--read, --write or --administer" in ann.refuses(USAGE, "key", "grant", "clinical", "bob")
    assert "has no grant" in ann.refuses(USAGE, "key", "revoke", "clinical", "bob")
    assert "nobody could administer" in ann.refuses(USAGE, "key", "revoke", "clinical", "ann")
    assert "nobody could administer" in ann.refuses(USAGE, "key", "grant", "clinical", "ann", "--read")
    assert "no label" in ann.refuses(NOT_PERMITTED, "key", "rotate", "other")
    assert "for stores in folders" in ann.refuses(USAGE, "key", "unlock")
    assert "has no row of a label" in served.person("olga").refuses(UNAVAILABLE, "key", "audit", "nolabel")
    for place in ("keyd:h1", "https://h1", "keyd:/h1"):
        assert "a service is named as keyd://h1" in ann.refuses(USAGE, "key", "list", env={"GAMBESON_KEYS": place})
    assert "there is no passphrase file /nope" in ann.refuses(
        UNAVAILABLE, "key", "init", "--store", str(ann.home / "own"), "--passphrase-file", "/nope"
    )
    # What is for services alone, with a store in a folder.
    carl = Person(served.gambeson, served.root / "carl", None)
    carl.does("key", "init", "--key-file")
    for words in (["grant", "a", "bob", "--read"], ["revoke", "a", "bob"], ["audit"]):
        assert "is for labels in a key service" in carl.refuses(USAGE, "key", *words)
    # Who is not of the site.
    stranger = Person(served.gambeson, served.root / "stranger", served.keys)
    assert "you are not known here" in stranger.refuses(UNAVAILABLE, "key", "list")
    for place, why in [
        ("keyd://", "names no key service"),
        (f"keyd://127.0.0.1:{served.port}", "an address is no name"),
        (f"keyd://elsewhere=127.0.0.1:{served.port}", "elsewhere"),
        (f"keyd://{served.host}=127.0.0.1:{free_port()}", served.host),
    ]:
        done = ann("key", "list", "--store", place)
        # Who answers and is another is refused.
        right = (REFUSED,) if place.startswith("keyd://elsewhere") else (USAGE, UNAVAILABLE)
        assert done.returncode in right and why in done.stderr, done
    away = ann.refuses(UNAVAILABLE, "key", "list", "--store", f"keyd://{served.host}=127.0.0.1:{free_port()}")
    assert "no key service runs there" in away and "gambeson keyd serve" in away and "attached" not in away


def test_who_may_make_labels(site: KeySite) -> None:
    site.rules('create = ["user:ann"]\n')
    with site.serving():
        ann, bob = site.person("ann"), site.person("bob")
        ann.does("key", "create", "clinical")
        said = bob.refuses(NOT_PERMITTED, "key", "create", "open")
        assert "user:bob may not make labels there" in said and "keyd.toml" in said
    site.rules('offisers = ["user:ann"]\n')
    refused = site.administrator(*site.keyd("serve"))
    assert refused.returncode == POLICY and "keyd.toml cannot be followed" in refused.stderr, refused
    site.rules("")
    (site.folder / "keyd.toml").chmod(0o666)
    refused = site.administrator(*site.keyd("serve"))
    assert refused.returncode == POLICY, refused


def test_labels_are_handed_on_and_taken_in(served: KeySite, ann: Person, bob: Person) -> None:
    # One that fails for want of a passphrase asks for no key.
    ann.refuses(UNAVAILABLE, "key", "export", "--export-passphrase-file", "nowhere", "out.keys", "clinical")
    assert "get" not in {row["event"] for row in ann.audit("clinical")}
    words = ann.secret("words", "words between us")
    ann.does("key", "export", "--read-only", "--export-passphrase-file", words, "out.keys", "clinical")
    carl = Person(served.gambeson, served.root / "carl", None)
    carl.does("key", "init", "--key-file")
    own = ["--passphrase-file", words, str(ann.home / "out.keys")]
    refused = carl.refuses(NOT_PERMITTED, "key", "import", *own)
    assert "--export-passphrase-file" in refused and "unlock" not in refused, refused
    carl.does("key", "import", "--export-passphrase-file", words, str(ann.home / "out.keys"))
    file = sealed(ann)
    assert carl.does("file", "cat", str(file)) == TEXT
    # To the owner of a key, and nobody else.
    public = carl.does("key", "recipient").strip()
    assert public == carl.does("key", "recipient").strip() and len(public) == 64
    said = ann.does("key", "export-wrapped", "--to", public, "wrapped.keys", "clinical")
    assert f"the owner of {public} alone" in said
    wrapped = str(ann.home / "wrapped.keys")
    bob.does("key", "recipient")
    assert "is wrapped to" in bob.refuses(NOT_PERMITTED, "key", "import", wrapped)
    assert "for reading and writing" in carl.does("key", "import", "--yes", wrapped) or True
    assert json.loads(carl.does("key", "list", "--json"))["labels"][0]["may_write"]
    exports = [row["about"] for row in ann.audit("clinical") if row["about"].get("for") == "export"]
    assert [about.get("recipient") for about in exports] == [None, public]
    assert "--export-passphrase-file" in ann.refuses(USAGE, "key", "export", "other.keys", "clinical")
    altered = bytearray((ann.home / "wrapped.keys").read_bytes())
    altered[80] ^= 1
    (carl.home / "altered.keys").write_bytes(altered)
    said = carl.refuses(REFUSED, "key", "import", str(carl.home / "altered.keys"))
    assert "the export" in said and "backup" not in said
    assert "there is no file nothing.keys" in carl.refuses(UNAVAILABLE, "key", "import", "nothing.keys")


def test_a_store_in_a_folder_moves_over(served: KeySite, ann: Person, bob: Person) -> None:
    """Labels and files of before: an import, and a rewrap under new versions that only the service has."""
    folder = {"GAMBESON_KEYS": str(bob.home / "keys")}
    bob.does("key", "init", "--key-file", env=folder)
    bob.does("key", "create", "samples", env=folder)
    file = bob.home / "samples.sealed"
    (bob.home / "samples").write_text(TEXT)
    bob.does("file", "seal", "--label", "samples", str(bob.home / "samples"), str(file), env=folder)
    words = bob.secret("words", "words between us")
    bob.does("key", "export", "--export-passphrase-file", words, "out.keys", "samples", env=folder)
    said = bob.does("key", "import", "--export-passphrase-file", words, "out.keys")
    assert 'took in "samples" up to version 1' in said
    assert "here already, with all" in bob.does("key", "import", "--export-passphrase-file", words, "out.keys")
    assert bob.does("file", "cat", str(file)) == TEXT
    bob.does("key", "rotate", "samples")
    bob.does("file", "rewrap", str(file))
    assert bob.does("file", "cat", str(file)) == TEXT
    assert bob("file", "cat", str(file), env=folder).returncode != 0
    # Whoever else brings the label is told that it is somebody's.
    copied = ann.home / "out.keys"
    copied.write_bytes((bob.home / "out.keys").read_bytes())
    refused = ann("key", "import", "--yes", "--export-passphrase-file", words, str(copied))
    assert refused.returncode == NOT_PERMITTED and 'no label "samples" is known to you' in refused.stderr, refused
    ann.refuses(NOT_PERMITTED, "key", "show", "samples")


def test_an_old_file_that_was_put_back_is_noticed(ann: Person, bob: Person) -> None:
    ann.does("key", "grant", "clinical", "bob", "--write")
    file = sealed(ann)
    old = file.read_bytes()
    bob.does("file", "rekey", str(file))
    assert ann.does("file", "cat", str(file)) == TEXT
    new = file.read_bytes()
    file.write_bytes(old)
    for person in (ann, bob):
        refused = person("file", "cat", str(file))
        assert refused.returncode == REFUSED and "old version" in refused.stderr, refused
        assert refused.stderr.endswith(f": gambeson file accept --older {file}\n"), refused
    # To put it back on purpose is for who administers the label.
    refused = bob("file", "accept", "--older", str(file))
    assert refused.returncode == NOT_PERMITTED, refused
    ann.does("file", "accept", "--older", str(file))
    assert bob.does("file", "cat", str(file)) == TEXT
    file.write_bytes(new)
    anchors = [row["event"] for row in ann.audit("clinical") if row["event"].startswith("anchor")]
    assert "anchor" in anchors and "anchor-back" in anchors


def test_a_label_of_a_name_that_was_there_begins_anew(served: KeySite, ann: Person, bob: Person) -> None:
    """Who makes a label of the name of one that was deleted sees nothing of that one, and has no say over its files."""
    sealed(ann)
    ann.does("key", "delete", "clinical", "--yes")
    ann.refuses(NOT_PERMITTED, "key", "show", "clinical")
    bob.does("key", "create", "clinical")
    assert [(row["event"], row["who"]["name"]) for row in bob.audit("clinical")] == [("create", "user:bob")]
    of_all = [row["event"] for row in served.person("olga").audit("clinical")]
    assert of_all[:3] == ["create", "get", "anchor"] and of_all[-1] == "create" and "delete" in of_all
    ann.refuses(NOT_PERMITTED, "key", "audit", "clinical")
    file = sealed(bob)
    assert bob.does("file", "cat", str(file)) == TEXT


def test_a_site_names_its_service(served: KeySite, ann: Person) -> None:
    ann.environment.pop("GAMBESON_KEYS")
    assert ann("key", "list").returncode == UNAVAILABLE
    of_site = ann.home / ".config/gambeson/site.toml"
    of_site.write_text(of_site.read_text() + f'keys = "{served.keys}"\n')
    assert ann.labels() == {"clinical": 1}
    # What somebody names himself goes before it.
    own = {"GAMBESON_KEYS": str(ann.home / "own")}
    ann.does("key", "init", "--key-file", env=own)
    assert json.loads(ann.does("key", "list", "--json", env=own))["labels"] == []
    # And with the next renewal everybody has it, from the authority's host.
    carl = served.person("carl")
    carl.environment.pop("GAMBESON_KEYS")
    site = served.folder / "site.toml"
    site.write_text(site.read_text() + f'keys = "{served.keys}"\n')
    dan = served.person("dan")
    dan.environment.pop("GAMBESON_KEYS")
    assert dan.labels() == {} and carl("key", "list").returncode == UNAVAILABLE


def test_several_addresses(served: KeySite, ann: Person) -> None:
    """The first does not answer, and the second is asked."""
    away = f"keyd://gone=127.0.0.1:{free_port()},{served.keys.removeprefix('keyd://')}"
    several = {"GAMBESON_KEYS": away}
    begun = time.monotonic()
    assert json.loads(ann.does("key", "list", "--json", env=several))["labels"][0]["label"] == "clinical"
    assert "version 2" in ann.does("key", "rotate", "clinical", env=several)
    assert time.monotonic() - begun < 20
    gone = {"GAMBESON_KEYS": f"keyd://gone=127.0.0.1:{free_port()},lost=127.0.0.1:{free_port()}"}
    said = ann.refuses(UNAVAILABLE, "key", "list", env=gone)
    assert "gone: " in said and "lost: " in said


def test_identities(served: KeySite, ann: Person, bob: Person) -> None:
    """Somebody who has two may say which."""
    other = {"GAMBESON_IDENTITY": str(ann.home / ".config/gambeson")}
    assert bob.labels() == {}
    listed = json.loads(bob.does("key", "list", "--json", env=other))["labels"]
    assert [label["label"] for label in listed] == ["clinical"]


def test_the_administrator_sees_backs_up_and_restores(site: KeySite) -> None:
    administrator = site.administrator
    assert "no service runs" in administrator.refuses(UNAVAILABLE, *site.keyd("status"))
    with site.serving():
        ann = site.person("ann")
        ann.does("key", "create", "clinical")
        status = json.loads(administrator.does(*site.keyd("status", "--json")))
        assert status["labels"] == 1 and not status["standby"] and status["tail"].split(":")[0].isdigit()
        refused = administrator(*site.keyd("serve", "--listen", f"127.0.0.1:{free_port()}"))
        assert refused.returncode == UNAVAILABLE and "another process has" in refused.stderr, refused
        backup = site.root / "backup.db"
        # Where people look for it, too.
        said = administrator.does("key", *site.keyd("backup", str(backup))[1:])
        assert "its log ends with" in said and backup.stat().st_mode & 0o777 == 0o600
        assert "already" in administrator.refuses(USAGE, *site.keyd("backup", str(backup)))
        ann.does("key", "create", "late")
        assert "and 2 labels are as they" in administrator.does(*site.keyd("verify"))
        since = json.loads(administrator.does(*site.keyd("verify", "--json")))["tail"]
        copied = json.loads(administrator.does(*site.keyd("backup", "--json", str(site.root / "again.db"))))
        assert copied["file"] == str(site.root / "again.db") and copied["tail"].split(":")[0].isdigit()
    assert "as they were written" in administrator.does(*site.keyd("verify", "--since", since))
    assert administrator(*site.keyd("restore", str(backup))).returncode == USAGE
    # On a new host: nothing of the folder is there but the file of the master key.
    site.forget()
    (site.folder / "keyd" / "keys.db.master").unlink()
    master_key = site.folder / "keyd" / "master-key"
    away = master_key.rename(site.root / "master-key")
    assert "there is no backup" in administrator.refuses(UNAVAILABLE, *site.keyd("restore", "none.db"))
    said = administrator.refuses(NOT_PERMITTED, *site.keyd("restore", str(backup)))
    assert f"there is no master key file:{master_key}" in said and "--master-key" in said, said
    assert not site.database.exists() and "init" not in said
    said = administrator.does(*site.keyd("restore", "--json", "--master-key", f"file:{away}", str(backup)))
    restored = json.loads(said)
    assert restored["labels"] == 1 and restored["master_key"] == f"file:{away}"
    site.forget()
    (site.folder / "keyd" / "keys.db.master").unlink()
    away.rename(master_key)
    said = administrator.does("key", *site.keyd("restore", str(backup))[1:])
    assert "1 label," in said and "what was done after" in said
    assert "never ended with" in administrator.refuses(REFUSED, *site.keyd("verify", "--since", since))
    with site.serving():
        assert ann.labels() == {"clinical": 1}
        altered = bytearray(backup.read_bytes())
        altered[len(altered) // 2] ^= 1
        (site.root / "altered.db").write_bytes(altered)
    site.forget()
    refused = administrator(*site.keyd("restore", str(site.root / "altered.db")))
    assert refused.returncode == REFUSED and not site.database.exists(), refused


def test_a_mistake_has_one_status(site: KeySite) -> None:
    """With a running service and without one."""
    administrator = site.administrator

    def mistakes() -> None:
        refused = administrator.refuses(UNAVAILABLE, *site.keyd("backup", "/nodir/x.db"))
        assert "the backup /nodir/x.db cannot be made" in refused and "as user 0" in refused
        there = str(site.passphrase)
        assert "already" in administrator.refuses(USAGE, *site.keyd("backup", there))
        for since in ("1:zz", "3:abc", "x"):
            assert "`gambeson keyd verify`" in administrator.refuses(USAGE, *site.keyd("verify", "--since", since))
        assert "never ended with" in administrator.refuses(REFUSED, *site.keyd("verify", "--since", f"1:{'0' * 64}"))
        wrong = administrator.secret("wrong", "not the passphrase")
        own = ["--new-passphrase-file", wrong, f"file:{site.folder}/keyd/master-key"]
        assert "passphrase is not" in administrator.refuses(NOT_PERMITTED, *site.keyd("master-key", *own))

    mistakes()
    backup = site.root / "backup.db"
    with site.serving():
        mistakes()
        administrator.does(*site.keyd("backup", str(backup)))
        other = f"0.0.0.0:{site.port}"
    site.forget()
    cut = site.root / "cut.db"
    cut.touch(0o600)
    cut.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])
    refused = administrator.refuses(REFUSED, *site.keyd("restore", str(cut)))
    assert str(cut) in refused and "keys.db" not in refused, refused
    administrator.does(*site.keyd("restore", str(backup)))
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", site.port))
        taken.listen()
        refused = administrator.refuses(UNAVAILABLE, *site.keyd("serve", "--listen", other))
    assert "`listen` in keyd.toml, or --listen" in refused


def test_what_cannot_be_meant_is_refused(site: KeySite) -> None:
    administrator = site.administrator
    site.rules("listen = []\n")
    assert "listen names no address" in administrator.refuses(POLICY, *site.keyd("serve"))
    (site.folder / "keyd.toml").unlink()
    (site.folder / "keyd.toml").symlink_to("nowhere")
    assert "keyd.toml cannot be followed" in administrator.refuses(POLICY, *site.keyd("serve"))
    (site.folder / "keyd.toml").unlink()
    refused = administrator.refuses(USAGE, *site.keyd("serve", "--host", "h2"))
    assert f"is for {site.host}" in refused and "keyd://h2" in refused, refused
    with site.serving("--host", site.host):
        pass


def test_who_does_not_see_the_folder_is_told_whose_it_is(site: KeySite) -> None:
    for words in ("status", "serve", "verify", "backup", "promote", "restore"):
        more = [str(site.root / "other.db")] if words in ("backup", "restore") else []
        command = ["setpriv", "--reuid", "65534", "--clear-groups", str(site.gambeson)]
        done = subprocess.run(
            [*command, *site.keyd(words, *more)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == NOT_PERMITTED and "is root's and closed to you" in done.stderr, done
        assert "run this as root" in done.stderr


def test_another_master_key(site: KeySite) -> None:
    administrator = site.administrator
    new = administrator.secret("new-master", "another master passphrase")
    backup = site.root / "backup.db"
    site.rules('officers = ["user:olga"]\n')
    with site.serving():
        ann = site.person("ann")
        ann.does("key", "create", "clinical")
        administrator.does(*site.keyd("backup", str(backup)))
        place = f"file:{site.root}/new-master-key"
        assert "(--new-passphrase-file)" in administrator.refuses(NOT_PERMITTED, *site.keyd("master-key", place))
        assert not (site.root / "new-master-key").exists()
        said = administrator.does(*site.keyd("master-key", "--new-passphrase-file", new, "--new-database-key", place))
        assert place in said and f"the last backups before this open with file:{site.folder}/keyd/master-key" in said
        said = administrator.does(*site.keyd("master-key", "--new-passphrase-file", new, place))
        assert "it was that already" in said and "backups" not in said
        assert ann.labels() == {"clinical": 1}
        ann.does("key", "grant", "clinical", "olga", "--read", "--until", "2999-06-30")
        olga = site.person("olga")
        grants = [row["about"]["until"] for row in olga.audit() if row["event"] == "grant"]
        assert grants == ["2999-07-01T00:00:00Z"]
        assert [row["record"] for row in olga.audit() if row["event"] == "reseal"] == ["label/clinical"]
        assert "reseal" in (said := olga.does("key", "audit")) and "label/clinical" in said and "null" not in said
    refused = administrator(*site.keyd("serve"))
    assert refused.returncode == NOT_PERMITTED and "passphrase is not that of" in refused.stderr, refused
    site.passphrase = new
    with site.serving():
        assert ann.labels() == {"clinical": 1}
        status = json.loads(administrator.does(*site.keyd("status", "--json")))
        assert status["master_key"] == place
    assert (site.root / "new-master-key").stat().st_mode & 0o777 == 0o600


def test_it_serves_on_when_nobody_reads_what_it_says(site: KeySite) -> None:
    """Who starts it may wait for its first line and go."""
    read, written = os.pipe()
    os.close(read)
    command = [str(site.gambeson), *site.keyd("serve", "--listen", f"127.0.0.1:{site.port}")]
    process = subprocess.Popen(
        command, env=site.administrator.environment, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.PIPE
    )
    os.close(written)
    try:
        ann = site.person("ann")
        for _ in range(100):
            if ann("key", "list").returncode == 0 or process.poll() is not None:
                break
            time.sleep(0.1)
        assert process.poll() is None, process.communicate()
        ann.does("key", "create", "clinical")
    finally:
        process.kill()
        process.communicate()
