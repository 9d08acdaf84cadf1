"""`gambeson sim` through the command line: run, sweep, advise, and what they say about mistakes."""

from __future__ import annotations

import csv
import json
import os
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from harness.sim import SMALL, Sim


@pytest.fixture
def sim(gambeson: Path, tmp_path: Path) -> Sim:
    made = Sim(gambeson, tmp_path)
    made.furnish()
    return made


@pytest.mark.parametrize("name", ["mesh", "key-cache", "flood", "attack"])
def test_every_example_runs_and_its_outcome_holds_the_experiment(sim: Sim, name: str) -> None:
    printed = sim.run("run", f"{name}.toml", "--json", "outcome.json")
    outcome = json.loads((sim.folder / "outcome.json").read_text())
    assert outcome["experiment"]["name"] in printed
    assert outcome["flows"][0]["latency"]["count"] > 100
    assert all(job["ended_us"] for job in outcome["jobs"])


def test_filters_keep_a_flood_out(sim: Sim) -> None:
    leaked = {}
    for scheme in ("none", "duplicate-table", "ingress", "stateful-ingress"):
        sim.run("run", "flood.toml", "--set", f"filter.scheme={scheme}", "--json", "outcome.json")
        leaked[scheme] = json.loads((sim.folder / "outcome.json").read_text())["leaked"]
    assert leaked["duplicate-table"] == leaked["ingress"] == 0
    assert 0 < leaked["stateful-ingress"] < leaked["none"] / 2


def test_a_sweep_says_what_an_attacker_can_do_by_the_keys(sim: Sim) -> None:
    over = ["--over", "security.level=none,partition,queue-pair", "--over", "attack.node=8,9"]
    sim.run("sweep", "attack.toml", *over, "--out", "out")
    rows = list(csv.DictReader((sim.folder / "out" / "results.csv").open()))
    taken = {(row["security.level"], row["attack.node"]): float(row["attack_taken"]) for row in rows}
    assert all(float(row["attack_sent"]) > 100 for row in rows)
    # Node 8 is of its victims' partition, node 9 is not.
    assert [taken[level, "8"] > 0 for level in ("none", "partition", "queue-pair")] == [True, True, False]
    assert [taken[level, "9"] > 0 for level in ("none", "partition", "queue-pair")] == [True, False, False]
    printed = sim.run("run", "attack.toml", "--set", "security.level=queue-pair")
    assert "wrong tag" in printed
    assert "its marks     led to it in" in printed


class Links(HTMLParser):
    """Elements of a page, and what it would load or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]


def test_a_sweep_writes_tables_pictures_and_a_page(sim: Sim) -> None:
    over = ["--over", "traffic.0.load=0.1,0.2,0.3", "--over", "security.level=none,queue-pair"]
    assert "12 runs: " in sim.run("sweep", "small.toml", *over, "--repeat", "2", "--out", "out")
    out = sim.folder / "out"
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert [(row["traffic.0.load"], row["security.level"], row["seed"]) for row in rows[:3]] == [
        ("0.1", "none", "1"),
        ("0.1", "none", "2"),
        ("0.1", "queue-pair", "1"),
    ]
    assert len(rows) == 12
    for row in rows:
        experiment = json.loads(row["experiment"])
        assert experiment["traffic"][0]["load"] == float(row["traffic.0.load"])
        assert experiment["seed"] == int(row["seed"])
    plain, sealed = (float(rows[at]["mean_ns"]) for at in (0, 2))
    assert plain < sealed
    parquet = (out / "results.parquet").read_bytes()
    assert parquet.startswith(b"PAR1")
    assert parquet.endswith(b"PAR1")
    for name in ("mean-latency", "p99-latency", "accepted", "hit-rate", "busiest-link"):
        text = "".join(ElementTree.parse(out / f"{name}.svg").getroot().itertext())
        assert "traffic.0.load" in text
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = Links()
    page.feed((out / "report.html").read_text())
    assert page.elements.count("svg") == 5
    assert "script" not in page.elements
    assert page.links == []


def test_an_interrupted_sweep_goes_on_and_nothing_depends_on_threads(sim: Sim) -> None:
    over = ["--over", "traffic.0.load=0.1,0.2,0.3"]
    sim.run("sweep", "small.toml", *over, "--jobs", "1", "--out", "whole")
    sim.run("sweep", "small.toml", "--over", "traffic.0.load=0.2", "--out", "part")
    assert "3 runs, 1 of them held already" in sim.run("sweep", "small.toml", *over, "--jobs", "4", "--out", "part")
    for name in ("results.csv", "results.parquet", "report.html", "mean-latency.png"):
        assert (sim.folder / "whole" / name).read_bytes() == (sim.folder / "part" / name).read_bytes(), name
    (sim.folder / "small.toml").write_text(SMALL.replace("[2, 2]", "[2, 3]"))
    assert "3 runs: " in sim.run("sweep", "small.toml", *over, "--out", "part")


def test_a_trace_with_other_content_is_another_experiment(sim: Sim) -> None:
    sweep = ["sweep", "key-cache.toml", "--over", "security.cache.entries=2,4", "--out", "out"]
    sim.run(*sweep)
    assert "2 of them held" in sim.run(*sweep)
    trace = sim.folder / "neighbours.goal"
    trace.write_text(trace.read_text().replace("4096b", "2048b"))
    assert "held" not in sim.run(*sweep)


def test_advice_is_what_a_run_with_it_shows(sim: Sim) -> None:
    arguments = ["advise", "neighbours.goal", "--machine", "key-cache.toml", "--target", "90", "--json", "advice.json"]
    printed = sim.run(*arguments)
    advice = json.loads((sim.folder / "advice.json").read_text())
    entries = advice["entries"]
    assert f"needs a session-key cache of {entries} entries for 90 % hits" in printed
    assert "A prefetch buffer of 4 gains" in printed
    sets = ["--set", f"security.cache={{entries={entries}}}", "--set", "name=check"]
    machine = (sim.folder / "key-cache.toml").read_text().replace("prefetch = { entries = 4 }", "")
    (sim.folder / "plain.toml").write_text(machine)
    sim.run("run", "plain.toml", *sets, "--json", "outcome.json")
    outcome = json.loads((sim.folder / "outcome.json").read_text())
    row = next(row for row in advice["rows"] if row["entries"] == entries)
    assert outcome["hit_rate"] == row["cache"]["hit_rate"]
    assert outcome["hit_rate"] >= 0.9


def test_advice_without_a_machine(sim: Sim) -> None:
    printed = sim.run("advise", "neighbours.goal", "--target", "99.99")
    assert "gets no 99.99 % hits from a session-key cache of any size" in printed
    assert "no message arrives for a process that is off its processor" in printed


def test_keys_get_around_at_the_cost_of_their_packets(sim: Sim) -> None:
    """The sums of the paper's messages, done again here: 290 B a management datagram, 1,024 B for keys of pairs."""
    printed = sim.run(
        *["keys", "--adapters", "1024", "--members", "64", "--subnets", "4", "--rate", "10", "--latency", "1"],
        *["--json", "keys.json"],
    )
    ways = json.loads((sim.folder / "keys.json").read_text())["ways"]
    cost = {way["what"]: (way["packets"], way["bytes"]) for way in ways}
    assert cost["P_SK across 4 subnets with 64 members each"] == (3 + 4 * 64, (3 + 4 * 64) * 290)
    assert cost["CA_SK_ij of all pairs, one to a packet"] == (1024 * 1023, 1024 * 1023 * 1024)
    assert cost["sessions with 1023 peers, RC"] == (2 * 1023, 2 * 1023 * 290)
    [initial, *_] = ways
    assert initial["messages"] == ["SM -> each CA: E_CA_SK(SM_SK)"]
    # Each packet's bits, the last one's way, and 160 ns of sealing and of opening.
    assert initial["time_ns"] == pytest.approx(1024 * 290 * 8 / 10 + 1000 + 320)
    assert all(way["what"] in printed for way in ways)


def test_a_cache_is_enough_for_so_many_keys(sim: Sim) -> None:
    """The paper's one value: 128 entries are enough for about 1,000 keys, 9 of 10 times; and the other way round."""
    printed = sim.run("capacity", "--entries", "128", "--off-over-on", "7.67", "--json", "capacity.json")
    assert "A cache of 128 entries holds all keys in use 90 % of the time, of up to 1001 keys." in printed
    rows = json.loads((sim.folder / "capacity.json").read_text())["rows"]
    hits = [row["hit_rate"] for row in rows]
    assert hits == sorted(hits, reverse=True)
    assert hits[-1] < 0.7 < 0.9 < hits[0]
    assert [row["all_fit"] >= 0.9 for row in rows] == [row["keys"] <= 1001 for row in rows]
    assert "A cache of 129 entries" in sim.run("capacity", "--keys", "1002", "--off-over-on", "7.67")
    less = sim.run("capacity", "--entries", "128", "--off-over-on", "7.67", "--packets", "3")
    assert less != printed


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["run", "nowhere.toml"], 69, "nowhere.toml cannot be read"),
        (["run", "small.toml", "--set", "traffic.0.lod=1"], 65, "unknown field `lod`"),
        (
            ["run", "small.toml", "--set", "security.level=partition", "--set", "security.cache.entries=0"],
            65,
            "no entry",
        ),
        (["sweep", "small.toml", "--over", "traffic.0.load", "--out", "out"], 64, "names no values"),
        (["sweep", "small.toml", "--over", "traffic.0.load=0.1,1.5", "--out", "out"], 65, "with traffic.0.load = 1.5"),
        (["sweep", "small.toml", "--over", "seed=1,2", "--repeat", "2", "--out", "out"], 65, "both choose seeds"),
        (["sweep", "small.toml", "--over", "seed=1,2", "--out", "small.toml"], 71, "small.toml cannot be written"),
        (
            ["sweep", "key-cache.toml", "--over", "replay.traces=['no.goal']", "--out", "out"],
            69,
            "no.goal cannot be read",
        ),
        (["run", "small.toml", "--set", "traffic.0.class=1"], 65, "small.toml: traffic traffic: class 1 of 1 classes"),
        (["run", "small.toml", "--set", "routing=adaptive", "--set", "fabric.adaptive_lanes=0"], 65, "can deadlock"),
        (["run", "small.toml", "--set", "marking_bits=1"], 65, "small.toml: marks of this topology take 2 bits"),
        (["run", "apart.toml"], 65, "apart.txt:2: the network is not connected"),
        (["run", "unmatched.toml"], 65, "unmatched.goal, rank 1, line 6: this receive from rank 0 (tag 6"),
        (["advise", "no.goal"], 69, "no.goal cannot be read"),
        (["advise", "small.toml"], 65, "small.toml"),
        (["advise", "neighbours.goal", "--target", "101"], 64, "up to 100"),
        (["advise", "neighbours.goal", "--machine", "small.toml"], 65, "security.level"),
        (["keys", "--adapters", "16", "--members", "17"], 64, "give at most 16"),
        (["capacity", "--off-over-on", "8"], 64, "--entries <N>"),
        (["capacity", "--entries", "65536", "--off-over-on", "1e6"], 64, "give a smaller --off-over-on"),
    ],
)
def test_mistakes_are_explained(sim: Sim, arguments: list[str], status: int, sentence: str) -> None:
    (sim.folder / "apart.toml").write_text(
        'topology = { kind = "file", path = "apart.txt" }\n[[traffic]]\nload = 0.2\n'
    )
    (sim.folder / "apart.txt").write_text("n0 a\nn1 b\n")
    (sim.folder / "unmatched.toml").write_text(SMALL.split("[[")[0] + '[replay]\ntraces = ["unmatched.goal"]\n')
    goal = "num_ranks 2\nrank 0 {\nsend 10b to 1 tag 5\n}\nrank 1 {\nrecv 10b from 0 tag 6\n}\n"
    (sim.folder / "unmatched.goal").write_text(goal)
    done = sim.call(*arguments)
    assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr


def test_files_are_looked_for_beside_the_experiment(sim: Sim) -> None:
    (sim.folder / "elsewhere").mkdir()
    moved = Sim(sim.gambeson, sim.folder / "elsewhere")
    assert "neighbours" in moved.run("run", "../key-cache.toml")
    # But what the command line names, as the shell completes it.
    done = moved.call("run", "../key-cache.toml", "--set", "replay.traces=['neighbours.goal']")
    assert done.stderr.startswith("gambeson: neighbours.goal cannot be read")
    (sim.folder / "neighbours.goal").unlink()
    assert "../neighbours.goal cannot be read" in moved.call("run", "../key-cache.toml").stderr


@pytest.mark.parametrize("name", ["skc-fig-3", "skc-fig-9"])
def test_reproduced_figures_are_pictures_and_the_page_shows_them(sim: Sim, name: str) -> None:
    (sim.folder / "pages").mkdir()
    written = ["--pictures", "all pictures", "--page", "pages/page.md", "--json", "sections.json"]
    sim.run("reproduce", name, *written)
    [section] = json.loads((sim.folder / "sections.json").read_text())
    [figure] = section["figures"]
    assert figure["name"] == name
    page = (sim.folder / "pages" / "page.md").read_text()
    link = next(line for line in page.splitlines() if line.startswith("![")).rpartition("(")[2].rstrip(")")
    drawing = sim.folder / "pages" / unquote(link)
    assert drawing.samefile(sim.folder / "all pictures" / f"{name}.svg")
    root = ElementTree.parse(drawing).getroot()
    text = [(element.text or "").strip() for element in root.iter() if element.tag.endswith("text")]
    [panel] = figure["panels"]
    said = [value for series in panel["series"] for value in series["paper"] if value is not None]
    labels = [series["name"] for series in panel["series"]] + ([figure["paper"]] if said else [])
    for shown in [figure["title"], figure["x_title"], panel["y_title"], *figure["x"], *labels]:
        assert shown in text
    # A bar for each value, beside the ground and a sample of each series; what the paper says is in the legend too.
    shapes = [element for element in root.iter() if element.tag.endswith("rect") and element.get("stroke") == "none"]
    values = [value for series in panel["series"] for value in series["values"]]
    assert len(shapes) == 1 + len(values) + len(panel["series"])
    assert (len(said), sum(element.tag.endswith("polygon") for element in root.iter())) in {(0, 0), (1, 2)}
    highest = max(values)
    assert f"{highest:.1f}" in page or f"{highest:.0f}" in page
    picture = drawing.with_suffix(".png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", picture[16:24])
    assert [2 * int(root.get(side, 0)) for side in ("width", "height")] == [width, height]


def test_what_has_no_figure_has_no_picture(sim: Sim) -> None:
    sim.run("reproduce", "iba-tables", "--pictures", "pictures", "--page", "page.md")
    assert list((sim.folder / "pictures").iterdir()) == []
    assert "![" not in (sim.folder / "page.md").read_text()
    done = sim.call("reproduce", "iba-tables", "--pictures", "small.toml")
    assert (done.returncode, "small.toml cannot be written" in done.stderr) == (71, True)


@pytest.mark.parametrize("arguments", [["run", "small.toml", "--json", "outcome.json"], ["reproduce", "iba-tables"]])
def test_a_reader_that_leaves_is_no_crash(sim: Sim, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(sim.gambeson), "sim", *arguments]
    done = subprocess.run(command, cwd=sim.folder, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    assert "--json" not in arguments or (sim.folder / "outcome.json").exists()


def test_the_help_teaches(sim: Sim) -> None:
    text = sim.run("--help")
    for word in ("run", "sweep", "advise", "capacity", "keys", "examples/simulator"):
        assert word in text
