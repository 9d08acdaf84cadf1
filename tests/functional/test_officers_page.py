"""The officers' page of a key service in Chromium: who is let in, what it shows, and how it looks; and its metrics."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import unavailable
from harness.browser import Desk, missing
from harness.daemons import serving
from harness.hosts import hosts
from harness.mpis import ROOT
from harness.site import Site
from PIL import Image, ImageStat

pytestmark = [pytest.mark.namespaces]

PASSPHRASE = "eight words or fewer"
RULES = """
page = "0.0.0.0:7202"
officers = ["user:olga"]
metrics = ["user:prometheus"]
"""
_number = itertools.count()
PAGE = "https://h1:7202"

# Asks on a host, and prints what came as JSON; the first line of stdin says what and how.
ASK = """
import http.client, json, ssl, sys
asked = json.load(sys.stdin)
context = ssl.create_default_context(cafile=asked["pages"])
if asked["identity"]:
    context.load_cert_chain(asked["identity"])
connection = http.client.HTTPSConnection("h1", 7202, context=context, timeout=20)
connection.request(asked["method"], asked["path"])
answer = connection.getresponse()
body = answer.read().decode()
print(json.dumps([answer.status, {name.lower(): value for name, value in answer.getheaders()}, body]))
"""


@dataclass
class Ocean:
    """A site with a key service and its page on h1, and people on h2."""

    site: Site
    passphrase: Path

    def identity(self, person: str) -> Path:
        """The folder of a person's identity, on h2."""
        folder = self.site.root / "h2" / "people"
        folder.mkdir(exist_ok=True)
        return folder / person

    def person(self, name: str) -> None:
        self.site.does("h1", "enroll", "--replace", "--user", name, "root@h2")
        shutil.move(self.site.home("h2", "identity.pem").parent, self.identity(name))

    def key(self, person: str, *words: str, status: int = 0) -> str:
        """`gambeson key ...` of a person on h2."""
        before = f"GAMBESON_IDENTITY={self.identity(person)} GAMBESON_KEYS=keyd://h1 "
        done = self.site.shell("h2", before + self.site.words(["key", *words]))
        assert done.returncode == status, done
        return done.stdout + done.stderr

    def browser(self, person: str) -> Path:
        """A person's file for a browser; beside it what the browser is to trust."""
        file = self.site.root / "h2" / f"{person}.p12"
        folder = str(self.identity(person))
        words = [
            "enroll",
            "--replace",
            "--browser",
            str(file),
            "--passphrase-file",
            str(self.passphrase),
            "--folder",
            folder,
        ]
        assert f"certified  user:{person} in a browser until" in self.site.does("h2", *words)
        return file

    def desk(self, person: str) -> Desk:
        file = self.browser(person)
        desk = Desk(self.site, "h2", f"{person}-{next(_number)}")
        desk.takes(file, self.passphrase, file.with_suffix(".pages.pem"))
        return desk

    def asks(self, person: str | None, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
        """What somebody is answered who comes with his identity of the site, and is no browser."""
        identity = str(self.identity(person) / "identity.pem") if person else None
        pages = str(self.site.etc("h1", "pages.pem"))
        asked = json.dumps({"method": method, "path": path, "identity": identity, "pages": pages})
        program = self.site.root / "ask.py"
        program.write_text(ASK)
        done = self.site.shell("h2", f"{sys.executable} {program}", asked)
        assert done.returncode == 0, done
        status, headers, body = json.loads(done.stdout)
        return status, headers, body


LONG = "x" * 64


@pytest.fixture(scope="module")
def ocean(tmp_path_factory: pytest.TempPathFactory, gambeson: Path) -> Iterator[Ocean]:
    if lacks := missing():
        unavailable(f"there is no {lacks}: run tools/bootstrap.sh test as root")
    folder = tmp_path_factory.mktemp("ocean")
    with hosts(folder, 2) as made, contextlib.ExitStack() as open_:
        site = Site(made, gambeson, folder / "site")
        passphrase = folder / "passphrase"
        passphrase.write_text(PASSPHRASE)
        passphrase.chmod(0o600)
        ocean = Ocean(site, passphrase)
        site.does("h1", "init", "--name", "ocean")
        site.does("h1", "enroll", "h2")
        for person in ("ann", "olga", "prometheus"):
            ocean.person(person)
        site.etc("h1", "keyd.toml").write_text(RULES)
        site.does("h1", "keyd", "init", "--passphrase-file", str(passphrase))
        open_.enter_context(serving(site, "h1"))
        serve = site.stays("h1", "keyd", "serve", "--passphrase-file", str(passphrase))
        process, said = open_.enter_context(serve)
        assert said.startswith("gambeson keyd: listening on"), process.communicate()
        # Keys are served without it; the page comes when the administrator has said so.
        ocean.key("ann", "create", "charts", "--expires", day(9))
        site.does("h1", "site", "pages", "h1")
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(AssertionError):
                ocean.asks("prometheus", "/metrics")
                break
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert process.poll() is None
        fill(ocean)
        yield ocean
        process.terminate()
        _, said = process.communicate(timeout=15)
        assert "the officers' page has its certificate, and is at https://h1:7202" in said, said


def day(days: int) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)).strftime("%Y-%m-%d")


def fill(ocean: Ocean) -> None:
    ocean.key("ann", "create", "genomes", "--expires", day(200))
    ocean.key("ann", "create", "notes")
    ocean.key("ann", "rotate", "notes")
    ocean.key("ann", "grant", "charts", "user:prometheus", "--read", "--until", day(3))
    ocean.key("prometheus", "show", "charts")
    assert "notes" in ocean.key("prometheus", "rotate", "notes", status=77)


def test_an_officer_sees_labels_and_log_in_a_browser(ocean: Ocean) -> None:
    desk = ocean.desk("olga")
    shown = desk.reads(PAGE + "/")
    assert "Key service on h1" in shown and ">user:olga" in shown, shown
    assert [*re.findall(r'href="/label\?name=(\w+)"', shown.split("<thead>")[1])] == ["charts", "genomes", "notes"]
    assert "key rotate charts" in shown and "key rotate notes" not in shown
    assert "key grant charts user:prometheus --read --until DATE" in shown
    assert "user:ann: read, write, administer" in shown and "user:prometheus: read" in shown
    assert re.search(r'class="tail">\d+:[0-9a-f]{64}<', shown), shown
    assert "1 request was refused" in shown.replace("\n", " ")
    log = desk.reads(PAGE + "/log")
    assert "genomes" in log and 'class="bad"' in log and "user:prometheus" in log
    refused = desk.reads(PAGE + "/log?event=refusal")
    assert "user:prometheus" in refused and "create" not in re.sub(r"(?s)<head>.*</head>", "", refused)
    label = desk.reads(PAGE + "/label?name=notes")
    assert "null" not in log + label
    assert "(newest)" in label and "rotate" in label and "user:ann" in label
    # Nothing was blocked by the page's own policy, and nothing is asked of anybody else.
    done = desk.browses("--enable-logging=stderr", "--v=0", "--dump-dom", url=PAGE + "/")
    assert "Content Security Policy" not in done.stderr, done.stderr


def test_others_get_in_nowhere_and_are_told_why(ocean: Ocean, tmp_path: Path) -> None:
    ann = ocean.desk("ann")
    shown = ann.reads(PAGE + "/")
    assert "user:ann, who is no officer of this key service: keyd.toml on h1" in shown and "charts" not in shown, shown

    nobody = Desk(ocean.site, "h2", "nobody")
    nobody.trusts(ocean.site.etc("h1", "pages.pem"))
    shown = nobody.reads(PAGE + "/log")
    assert "has shown no certificate of this site" in shown and "charts" not in shown, shown

    # Another site of the same name, so that the browser offers its certificate.
    folder, file = tmp_path / "desert", tmp_path / "olga.p12"
    ocean.site.does("h2", "init", "--name", "ocean", "--folder", str(folder))
    words = ["--browser", str(file), "--passphrase-file", str(ocean.passphrase), "--folder", str(folder)]
    assert "this site has no pages yet" in ocean.site.does("h2", "enroll", *words)
    desert = Desk(ocean.site, "h2", "desert")
    desert.takes(file, ocean.passphrase)
    desert.trusts(ocean.site.etc("h1", "pages.pem"))
    shown = desert.reads(PAGE + "/")
    assert "is not accepted here" in shown and "charts" not in shown, shown

    # Without what it is to trust no browser shows it.
    distrusts = Desk(ocean.site, "h2", "distrusts")
    distrusts.takes(ocean.browser("olga"), ocean.passphrase)
    assert "Key service on" not in distrusts.reads(PAGE + "/")

    for who in ("user:ann", "ann"):
        refused = ocean.desk("olga").reads(PAGE + f"/log?event=refusal&who={who}")
        assert "names none of his roles under officers" in refused, refused
    assert "There are no such rows" in ocean.desk("olga").reads(PAGE + "/log?event=refusal&who=nn")


def test_answers_are_read_only_and_stay_nowhere(ocean: Ocean) -> None:
    ocean.key("olga", "list")
    status, headers, body = ocean.asks("olga", "/")
    assert status == 200 and "charts" in body
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store" and "max-age=" in headers["strict-transport-security"]
    assert headers["x-content-type-options"] == "nosniff" and "server" not in headers
    assert "<script" not in body and "http:" not in body and "https:" not in body
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        status, headers, _ = ocean.asks("olga", "/label?name=charts", method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert ocean.asks("olga", "/", "HEAD")[::2] == (200, "")
    for path in ("/label?name=%3Cscript%3E", "/..%2f..%2fetc%2fpasswd", "/metrics/"):
        status, _, body = ocean.asks("olga", path)
        assert status == 404 and "<script" not in body
    for who in (None, "ann"):
        for path in ("/", "/log", "/metrics", "/label?name=charts"):
            status, _, body = ocean.asks(who, path)
            assert status == 403 and "charts" not in body and "gambeson_keyd" not in body


def test_prometheus_fetches_metrics_and_nothing_else(ocean: Ocean) -> None:
    assert ocean.asks("prometheus", "/")[0] == 403
    before = metrics(ocean)
    ocean.key("ann", "show", "notes")
    ocean.key("ann", "rotate", "notes")
    after = metrics(ocean)
    assert (
        after['gambeson_keyd_changes_total{event="rotate"}']
        == before['gambeson_keyd_changes_total{event="rotate"}'] + 1
    )
    assert after["gambeson_keyd_log_rows"] > before["gambeson_keyd_log_rows"]
    assert after["gambeson_keyd_commit_seconds_count"] > before["gambeson_keyd_commit_seconds_count"]
    assert after['gambeson_keyd_labels_expiring{days="30"}'] == 1 and after["gambeson_keyd_labels"] == 3
    assert after["gambeson_keyd_primary"] == 1 and after["gambeson_keyd_clients"] >= 0
    backup = ocean.site.root / "h1" / "backup.db"
    time.sleep(2)
    ocean.site.does("h1", "keyd", "backup", str(backup))
    assert metrics(ocean)["gambeson_keyd_backup_age_seconds"] < after["gambeson_keyd_backup_age_seconds"] + 2


def metrics(ocean: Ocean) -> dict[str, float]:
    status, headers, body = ocean.asks("prometheus", "/metrics")
    assert status == 200 and headers["content-type"].startswith("application/openmetrics-text")
    assert "charts" not in body and "user:" not in body
    lines = [line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_alerts_are_about_metrics_that_there_are(ocean: Ocean) -> None:
    rules = ROOT / "packaging/prometheus/gambeson-keyd.rules.yml"
    text = rules.read_text()
    _, _, body = ocean.asks("prometheus", "/metrics")
    # These are there where there is a standby.
    told = {"gambeson_keyd_behind_rows", "gambeson_keyd_silent_seconds"}
    told |= {name for name, _ in re.findall(r"# TYPE (\w+) (\w+)", body)}
    asked = set(re.findall(r"gambeson_keyd_\w+", "\n".join(re.findall(r"expr: (.*)", text))))
    assert asked and {re.sub(r"_(total|bucket)$", "", name) for name in asked} <= told
    alerts = re.findall(
        r"- alert: (\w+)\n\s+expr: .*\n(?:\s+for: \d+m\n)?\s+labels: \{severity: (\w+)\}\n"
        r"\s+annotations:\n\s+summary: \"[^\"]+\"\n\s+description: \"[^\"]+\"",
        text,
    )
    assert len(alerts) == text.count("- alert:") == len({name for name, _ in alerts})
    # Where Prometheus is installed, its own checker says so, too.
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", str(rules)], check=True, timeout=60)


def test_it_is_drawn_in_light_and_dark_and_on_narrow_screens(ocean: Ocean, tmp_path: Path) -> None:
    desk = ocean.desk("olga")
    ocean.key("ann", "create", LONG)
    drawn = {}
    for name, path in (("overview", "/"), ("log", "/log"), ("label", "/label?name=notes")):
        for screen, width, height in (("wide", 1280, 900), ("narrow", 480, 1400)):
            for dark in (False, True):
                picture = tmp_path / f"{name}-{screen}-{'dark' if dark else 'light'}.png"
                desk.draws(PAGE + path, picture, width=width, height=height, dark=dark)
                drawn[picture.stem] = brightness(picture)
                if screen == "wide":
                    assert is_within(picture), picture
    for name, light in drawn.items():
        if name.endswith("light"):
            assert drawn[name.replace("light", "dark")] < 80 < 200 < light, drawn


def is_within(picture: Path) -> bool:
    """Below the page's head nothing reaches its right edge."""
    with Image.open(picture) as image:
        edge = image.convert("RGB").crop((image.width - 12, 120, image.width, image.height))
        return len(edge.getcolors() or []) == 1


def brightness(picture: Path) -> float:
    with Image.open(picture) as image:
        return float(ImageStat.Stat(image.convert("L")).median[0])
