//! The IBA paper's attacks against its defences, each pair of them in a run of its own (sections 4.3, 5.1, 6.1, 6.2).

use super::{Finding, Outcome, Setting, Table, infiniband, us};
use crate::error::Error;
use crate::experiment::{self, Experiment, Measure};
use crate::filter::Scheme;
use crate::routing::Routing;
use crate::security::{KeyLevel, ReplayConfig, ReplayDefence, SecurityConfig};
use crate::traffic::{AttackConfig, AttackKind, AttackOutcome, Pattern, SourceConfig};
use crate::transport::{Operation, Service, Transport};

/// Who attacks: a node of the partition that it listens to, or one of another.
const PLACES: [(&str, u32); 2] = [("same partition", 8), ("another", 9)];
/// A switch that the packets of partition 0, a column of the mesh, come through.
const TAP: u32 = 4;
const LEVELS: [(&str, KeyLevel); 3] =
    [("no keys", KeyLevel::None), ("partition keys", KeyLevel::Partition), ("queue-pair keys", KeyLevel::QueuePair)];
const DEFENCES: [(&str, ReplayDefence); 2] =
    [("stamps", ReplayDefence::Timestamps), ("window", ReplayDefence::SequenceWindow)];
/// Runs of a row at one place.
const COLUMNS: usize = LEVELS.len() * DEFENCES.len();

/// Rows of the table.
const SHOWN: usize = 11;

/// An attack.
struct Row {
    name: &'static str,
    kind: AttackKind,
    service: Service,
    spoofed: bool,
    filter: Scheme,
    /// Of each honest node.
    load: f64,
}

const fn row(name: &'static str, kind: AttackKind, service: Service, spoofed: bool) -> Row {
    Row { name, kind, service, spoofed, filter: Scheme::None, load: 0.3 }
}

/// The rows of the table, and one more that floods are compared with. What is written to memory goes by reliable
/// connections.
const ROWS: [Row; SHOWN + 1] = [
    row("I: listen, connections", AttackKind::Eavesdrop, Service::Uc, false),
    row("I: listen, datagrams", AttackKind::Eavesdrop, Service::Ud, false),
    row("II: captured P_Key", AttackKind::Forge, Service::Uc, false),
    row("II: captured Q_Key", AttackKind::Forge, Service::Ud, false),
    row("II: captured R_Key", AttackKind::Forge, Service::Rc, false),
    row("III: P_Key, false sender", AttackKind::Forge, Service::Uc, true),
    row("III: Q_Key, false sender", AttackKind::Forge, Service::Ud, true),
    row("III: R_Key, false sender", AttackKind::Forge, Service::Rc, true),
    row("replay", AttackKind::Replay, Service::Uc, true),
    Row { load: 0.7, ..row("IV: flood", AttackKind::Flood, Service::Uc, false) },
    Row { load: 0.7, filter: Scheme::StatefulIngress, ..row("IV: flood, SIF", AttackKind::Flood, Service::Uc, false) },
    Row { load: 0.7, ..row("as many packets, no flood", AttackKind::Eavesdrop, Service::Uc, false) },
];

/// One run.
fn experiment(row: &Row, node: u32, level: KeyLevel, replay: ReplayConfig) -> Experiment {
    let operation = if row.service == Service::Rc { Operation::Write } else { Operation::Send };
    let transport = Transport { service: row.service, operation, global: true };
    let mut experiment = infiniband::preset();
    experiment.security = SecurityConfig { level, replay, ..SecurityConfig::iba_paper() };
    experiment.filter.scheme = row.filter;
    experiment.marking_bits = Some(14);
    experiment.measure = Measure { warmup_us: 200.0, for_us: 2_000.0, interval_us: None };
    experiment.traffic =
        vec![SourceConfig { load: row.load, pattern: Pattern::Partition, transport, ..SourceConfig::default() }];
    experiment.attack = Some(AttackConfig {
        kind: row.kind,
        node,
        tap: Some(TAP),
        load: if row.kind == AttackKind::Flood { 1.0 } else { 0.1 },
        from_us: 200.0,
        spoofed: row.spoofed,
        plain: false,
        age_us: 10.0,
    });
    experiment
}

/// What came out of all runs.
struct Outcomes(Vec<experiment::Outcome>);

impl Outcomes {
    /// Of a row, a place, a level and a defence, by their numbers.
    fn at(&self, row: usize, place: usize, level: usize, defence: usize) -> &experiment::Outcome {
        &self.0[((row * PLACES.len() + place) * LEVELS.len() + level) * DEFENCES.len() + defence]
    }

    /// Whether all of these cells are so.
    fn all(&self, rows: &[usize], places: &[usize], levels: &[usize], so: impl Fn(&AttackOutcome) -> bool) -> bool {
        rows.iter().all(|&row| {
            places.iter().all(|&place| {
                levels
                    .iter()
                    .all(|&level| (0..DEFENCES.len()).all(|defence| so(&attack(self.at(row, place, level, defence)))))
            })
        })
    }
}

fn attack(outcome: &experiment::Outcome) -> AttackOutcome {
    outcome.attack.unwrap_or_default()
}

/// The share of the packets that got to a receiver which it took, in per cent.
fn taken(attack: &AttackOutcome) -> f64 {
    100.0 * attack.taken as f64 / (attack.taken + attack.refused.sum()).max(1) as f64
}

fn readable(attack: &AttackOutcome) -> f64 {
    100.0 * attack.readable as f64 / attack.overheard.max(1) as f64
}

/// What was wrong with most.
fn stopped_by(attack: &AttackOutcome) -> &'static str {
    attack.refused.each().into_iter().max_by_key(|&(_, count)| count).map_or("", |(refusal, _)| refusal.name())
}

/// Honest packets that were refused, in per cent of those that should have been taken.
fn lost(outcome: &experiment::Outcome) -> f64 {
    let attack = attack(outcome);
    let honest = outcome.arrived - attack.taken;
    100.0 * attack.honest_refused.sum() as f64 / (honest + attack.honest_refused.sum()).max(1) as f64
}

fn latency(outcome: &experiment::Outcome) -> f64 {
    outcome.flows[0].latency.mean_ns
}

fn cell(row: &Row, outcome: &experiment::Outcome, calm: f64) -> String {
    let attack = attack(outcome);
    let mut text = match row.kind {
        AttackKind::Eavesdrop => format!("{:.0} % read", readable(&attack)),
        AttackKind::Flood => format!("latency x {:.2}", latency(outcome) / calm),
        AttackKind::Forge | AttackKind::Replay if taken(&attack) >= 99.5 => "all taken".into(),
        AttackKind::Forge | AttackKind::Replay => format!("{:.0} %: {}", taken(&attack), stopped_by(&attack)),
    };
    if lost(outcome) >= 0.5 {
        text += &format!(", honest lose {:.0} %", lost(outcome));
    }
    text
}

/// The table of all attacks, and what the paper says of them.
pub(super) fn attacks(setting: &Setting<'_>) -> Result<Outcome, Error> {
    let mut runs = Vec::new();
    for row in &ROWS {
        for (_, node) in PLACES {
            for (_, level) in LEVELS {
                for (_, defence) in DEFENCES {
                    runs.push(experiment(row, node, level, ReplayConfig { defence, ..ReplayConfig::default() }));
                }
            }
        }
    }
    let outcomes = Outcomes(setting.each(&runs, Experiment::run)?);
    let title = "Attack by defence, every cell a run: what the attacker can read of what it hears; what receivers take of \
                 its packets, and the check that stopped the others; honest packets' latency in a flood by that without. \
                 Where honest packets are refused for the attack, their share of all honest ones";
    let head = ["attack", "attacker in"].map(String::from).into_iter();
    let columns = LEVELS.iter().flat_map(|(level, _)| DEFENCES.map(|(defence, _)| format!("{level}, {defence}")));
    let mut table = Table { title: title.into(), head: head.chain(columns).collect(), rows: Vec::new() };
    for (number, row) in ROWS[..SHOWN].iter().enumerate() {
        for (place, (name, _)) in PLACES.iter().enumerate() {
            let cells = (0..COLUMNS).map(|column| {
                let (level, defence) = (column / DEFENCES.len(), column % DEFENCES.len());
                let calm = latency(outcomes.at(SHOWN, place, level, defence));
                cell(row, outcomes.at(number, place, level, defence), calm)
            });
            table.row([row.name.to_owned(), (*name).to_owned()].into_iter().chain(cells));
        }
    }
    let mut findings = captured(&outcomes);
    findings.extend(senders_and_floods(&outcomes));
    let (tables, more) = sent_again(setting)?;
    findings.extend(more);
    findings.push(downgrade(setting)?);
    findings.push(alerts(setting)?);
    Ok(Outcome { findings, tables: [vec![table], tables].concat(), ..Outcome::default() })
}

/// Types I and II.
fn captured(outcomes: &Outcomes) -> Vec<Finding> {
    const LISTEN: [usize; 2] = [0, 1];
    const FORGE: [usize; 3] = [2, 3, 4];
    let range = |rows: &[usize], place: usize, level: usize, of: fn(&AttackOutcome) -> f64| {
        let values: Vec<f64> = rows
            .iter()
            .flat_map(|&row| [0, 1].map(|defence| of(&attack(outcomes.at(row, place, level, defence)))))
            .collect();
        let (least, most) =
            (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
        if most - least < 0.5 { format!("{most:.0} %") } else { format!("{least:.0} to {most:.0} %") }
    };
    let everything = |attack: &AttackOutcome| attack.readable == attack.overheard && attack.overheard > 0;
    let nothing = |attack: &AttackOutcome| attack.readable == 0 && attack.overheard > 0;
    let accepted = |attack: &AttackOutcome| taken(attack) > 95.0;
    let refused = |attack: &AttackOutcome| attack.taken == 0 && attack.refused.sum() > 0;
    vec![
        Finding::new(
            "4.3.1",
            "type I: without encryption, who listens at a switch gets all data",
            format!("{} read", range(&LISTEN, 1, 0, readable)),
            outcomes.all(&LISTEN, &[0, 1], &[0], everything),
            "",
        ),
        Finding::new(
            "4.3.2",
            "type II: a captured P_Key, Q_Key or R_Key is enough to forge",
            format!("{} taken", range(&FORGE, 1, 0, taken)),
            outcomes.all(&FORGE, &[0, 1], &[0], accepted),
            "with the queue pair's number and a sequence from the captured packet. Where receivers keep a window of \
             sequences, forged numbers run ahead and the honest packets behind them are refused",
        ),
        Finding::new(
            "5.1.1",
            "partition keys remove types I and II that come from other partitions",
            format!("{} read, {} taken", range(&LISTEN, 1, 1, readable), range(&FORGE, 1, 1, taken)),
            outcomes.all(&LISTEN, &[1], &[1], nothing) && outcomes.all(&FORGE, &[1], &[1], refused),
            "",
        ),
        Finding::new(
            "5.1.1",
            "they do not block a member of the same partition",
            format!("{} read, {} taken", range(&LISTEN, 0, 1, readable), range(&FORGE, 0, 1, taken)),
            outcomes.all(&LISTEN, &[0], &[1], everything) && outcomes.all(&FORGE, &[0], &[1], accepted),
            "",
        ),
        Finding::new(
            "5.1.2",
            "queue-pair keys: types I and II fail even in the same partition (connections)",
            format!("{} read, {} taken", range(&[0], 0, 2, readable), range(&[2, 4], 0, 2, taken)),
            outcomes.all(&[0], &[0, 1], &[2], nothing) && outcomes.all(&[2, 4], &[0, 1], &[2], refused),
            "",
        ),
        Finding::new(
            "5.1.2",
            "queue-pair keys: types I and II fail even in the same partition (datagrams)",
            format!("{} read, {} taken", range(&[1], 0, 2, readable), range(&[6], 0, 2, taken)),
            outcomes.all(&[1], &[0, 1], &[2], nothing) && outcomes.all(&[6], &[0, 1], &[2], refused),
            "a datagram's queue pair has one key, which REP or SIDR_REP gives to each who may speak to it (5.1.5): all \
             of them can read and forge what the others send there. Out of another partition it holds",
        ),
        Finding::new(
            "5.1.2",
            "an exposed R_Key opens no memory without the queue pair's key",
            format!("{} taken", range(&[4, 7], 0, 2, taken)),
            outcomes.all(&[4, 7], &[0, 1], &[2], refused),
            "",
        ),
    ]
}

/// Types III and IV.
fn senders_and_floods(outcomes: &Outcomes) -> Vec<Finding> {
    const SPOOFED: [usize; 3] = [5, 6, 7];
    let (mut claimed, mut traced, mut packets) = (0, 0, 0);
    for row in SPOOFED {
        for cell in 0..PLACES.len() * COLUMNS {
            let (place, column) = (cell / COLUMNS, cell % COLUMNS);
            let attack = attack(outcomes.at(row, place, column / DEFENCES.len(), column % DEFENCES.len()));
            claimed += attack.sender_claimed[0];
            traced += attack.sender_traced[0];
            packets += attack.sender_claimed.iter().sum::<u64>();
        }
    }
    let factor = |row: usize| {
        let cells = (0..PLACES.len() * COLUMNS).map(|cell| {
            let (place, level, defence) = (cell / COLUMNS, cell % COLUMNS / DEFENCES.len(), cell % DEFENCES.len());
            latency(outcomes.at(row, place, level, defence)) / latency(outcomes.at(SHOWN, place, level, defence))
        });
        cells.fold((f64::MAX, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)))
    };
    let (open, filtered) = (factor(9), factor(10));
    vec![
        Finding::new(
            "6.1",
            "type III: distance marks find the sender whatever address it claims",
            format!("{traced} of {packets} packets by the marks, {claimed} by the address"),
            traced == packets && packets > 0 && claimed == 0,
            "",
        ),
        Finding::new(
            "4.3.3, 6.1",
            "type IV: floods under illegal keys hurt others on their way whatever the keys; SIF blocks them",
            format!(
                "latency x {:.2} to {:.2} without a filter, x {:.2} to {:.2} with SIF; none taken",
                open.0, open.1, filtered.0, filtered.1
            ),
            open.0 > 1.1 && filtered.1 < open.0 && outcomes.all(&[9, 10], &[0, 1], &[0, 1, 2], |a| a.taken == 0),
            "one node at the full rate for 2 ms, the others at 0.7; Fig. 1 and 8 have more of it",
        ),
    ]
}

/// Replays by the parameters of the defences.
fn sent_again(setting: &Setting<'_>) -> Result<(Vec<Table>, Vec<Finding>), Error> {
    let stamps = |tick_ms, tolerance| ReplayConfig {
        defence: ReplayDefence::Timestamps,
        tick_ms,
        tolerance,
        ..ReplayConfig::default()
    };
    let window = |window| ReplayConfig { defence: ReplayDefence::SequenceWindow, window, ..ReplayConfig::default() };
    let variants = [
        ("none", ReplayConfig::default(), Routing::Deterministic),
        ("stamps of 1 s, one tick off (the paper's granularity)", stamps(1000.0, 1), Routing::Deterministic),
        ("stamps of 1 s, none off", stamps(1000.0, 0), Routing::Deterministic),
        ("stamps of 0.1 ms, one off", stamps(0.1, 1), Routing::Deterministic),
        ("stamps of 0.1 ms, none off", stamps(0.1, 0), Routing::Deterministic),
        ("window of 64 sequences", window(64), Routing::Deterministic),
        ("window of 64 sequences, adaptive routing", window(64), Routing::Adaptive),
        ("window of 1024 sequences, adaptive routing", window(1024), Routing::Adaptive),
    ];
    // At once, and after half a millisecond.
    let runs: Vec<Experiment> = variants
        .iter()
        .flat_map(|&(_, replay, routing)| {
            [0.0, 500.0].map(|age_us| {
                let mut experiment = experiment(&ROWS[8], PLACES[0].1, KeyLevel::QueuePair, replay);
                experiment.routing = routing;
                experiment.attack.as_mut().expect("the row attacks").age_us = age_us;
                experiment
            })
        })
        .collect();
    let outcomes = setting.each(&runs, Experiment::run)?;
    let title = "Captured packets sent again under queue-pair keys: share that is taken, by the receiver's defence and how \
                 long they were kept (a copy that overtakes its original is taken in its place)";
    let head = ["defence", "sent at once", "after 0.5 ms", "honest packets refused", "honest packets' latency"];
    let mut table = Table::new(title, &head);
    for ((name, ..), outcomes) in variants.iter().zip(outcomes.chunks(2)) {
        let [at_once, later] = [0, 1].map(|age: usize| format!("{:.1} %", taken(&attack(&outcomes[age]))));
        let honest = [format!("{:.2} %", lost(&outcomes[0])), us(latency(&outcomes[0]))];
        table.row([(*name).into(), at_once, later].into_iter().chain(honest));
    }
    let taken = |number: usize, age: usize| taken(&attack(&outcomes[2 * number + age]));
    let findings = vec![
        Finding::new("6.2", "tags alone let replays in", format!("{:.0} % taken", taken(0, 0)), taken(0, 0) > 99.9, ""),
        Finding::new(
            "6.2",
            "time stamps under the tag keep replays out",
            format!(
                "{:.0} % taken with the paper's second; with 0.1 ms {:.0} % at once, {:.0} % after 0.5 ms; with a window of \
                 64 sequences {:.0} %",
                taken(1, 1),
                taken(3, 0),
                taken(3, 1),
                taken(5, 0)
            ),
            taken(1, 1) < 1.0,
            "a stamp is fresh for a tick or two, and the packet as often as it comes: they bound replays in time, not in \
             number. Shorter ticks need clocks that agree as well, and with no tick of tolerance honest packets under \
             way at a tick are lost; a window takes each packet once",
        ),
    ];
    Ok((vec![table], findings))
}

/// The field that says whether a packet has a tag is not under the tag.
fn downgrade(setting: &Setting<'_>) -> Result<Finding, Error> {
    let runs = [true, false].map(|accept_plain| {
        let replay = ReplayConfig { defence: ReplayDefence::SequenceWindow, ..ReplayConfig::default() };
        let mut experiment = experiment(&ROWS[4], PLACES[1].1, KeyLevel::QueuePair, replay);
        experiment.security.accept_plain = accept_plain;
        if let Some(attack) = &mut experiment.attack {
            attack.plain = true;
        }
        experiment
    });
    let outcomes = setting.each(&runs, Experiment::run)?;
    let shares: Vec<f64> = outcomes.iter().map(|outcome| taken(&attack(outcome))).collect();
    Ok(Finding::new(
        "5.2",
        "a zero in the BTH's reserved field means the plain ICRC, so that tags are on demand; a MAC removes type II",
        format!(
            "{:.0} % of forged packets with a zero there are taken; {:.0} % where receivers demand the tag",
            shares[0], shares[1]
        ),
        shares[0] < 1.0,
        "the forger chooses the field: a receiver that goes by it is open to all. The table's receivers demand a tag \
         wherever they have a key (security.accept_plain = false)",
    ))
}

/// A forger who names an honest sender is hidden by that one's genuine packets.
fn alerts(setting: &Setting<'_>) -> Result<Finding, Error> {
    const AMONG: u32 = 256;
    let runs = [(false, 0), (true, 0), (true, AMONG)].map(|(spoofed, among)| {
        let replay = ReplayConfig { defence: ReplayDefence::SequenceWindow, ..ReplayConfig::default() };
        let row = Row { spoofed, ..ROWS[4] };
        let mut experiment = experiment(&row, PLACES[0].1, KeyLevel::QueuePair, replay);
        experiment.security.alert.among = among;
        experiment
    });
    let outcomes = setting.each(&runs, Experiment::run)?;
    let seen: Vec<AttackOutcome> = outcomes.iter().map(attack).collect();
    let counted = |attack: &AttackOutcome| format!("{} alerts for {} wrong tags", attack.alerts, attack.refused.tag);
    Ok(Finding::new(
        "6.1",
        "forging is noticed by consecutive failures",
        format!(
            "{} under the forger's own address, {} under the honest sender's; {} where 16 failures among {AMONG} packets \
             count",
            counted(&seen[0]),
            counted(&seen[1]),
            counted(&seen[2])
        ),
        seen[1].alerts > 0,
        "genuine packets of the sender that the forger names come in between and begin the count anew, so that no row of 16 \
         comes about. Counted among so many packets (security.alert.among) it does not hide",
    ))
}
