//! What needs no run of a fabric: tables, collisions, forging, and how keys get around.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Finding, Outcome, Setting, Table};
use crate::error::Error;
use crate::model::tables::{self, Enforcement, Paper};
use crate::security::key_distribution::{self, Cluster, Path, Way};
use crate::security::{AlertConfig, Authenticator};
use crate::time;

/// The claims of a paper that follow from its own rules, or do not.
fn claims(paper: Paper) -> Vec<Finding> {
    let claims = tables::claims().into_iter().filter(|claim| claim.paper == paper);
    let finding = |claim: tables::Claim| {
        let value = |value: f64| format!("{} {}", number(value), claim.unit).trim_end().to_owned();
        let said = format!("{}: {}", claim.quantity, value(claim.printed));
        Finding::new(claim.place, said, value(claim.computed), claim.holds(), claim.note)
    };
    claims.map(finding).collect()
}

/// A number with as many digits as one wants to read.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 1e-3 => format!("{value:.2e}"),
        size if size < 10.0 => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        size if size < 1e3 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.0}"),
    }
}

pub(super) fn key_cache(_: &Setting<'_>) -> Result<Outcome, Error> {
    let mut findings = claims(Paper::SessionKeyCache);
    let said = tables::EXECUTION_TIMES
        .map(|row| format!("{} {} / {}", row.benchmark, row.original_s, row.simulated_s))
        .join(", ");
    findings.push(Finding::missing(
        "Table 1",
        &format!("measured / simulated seconds: {said}"),
        "the traces of 16 ranks hold processor time and no wall time, so that there is no measured time to compare with; \
         the printed ones are some hundred times those of the same programs today (BT.A computes 2.8 s a rank), probably \
         stretched by the printing of each packet. The same comparison on jobs of 2 and 4 ranks that `gambeson run \
         --trace` recorded is in docs/traces.md",
    ));
    Ok(Outcome { findings, ..Outcome::default() })
}

pub(super) fn infiniband(_: &Setting<'_>) -> Result<Outcome, Error> {
    let mut findings = claims(Paper::InfiniBandSecurity);
    findings.extend(forging());
    Ok(Outcome { findings, tables: vec![enforcement(), distribution(), alerts()], ..Outcome::default() })
}

/// What the length of a row of failures, which the paper leaves open, decides.
fn alerts() -> Table {
    let title = "Forging by the failures before an alert: packets until then, and that one of them was taken";
    let mut table = Table::new(title, &["failures in a row", "alert at packet", "32-bit tag", "16-bit tag"]);
    for failures in [1, 4, 16, 64, 1024] {
        let mut receiver = Authenticator::new(32, AlertConfig { failures, ..AlertConfig::default() });
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut packets: u32 = 0;
        while receiver.stats().alerts == 0 {
            packets += 1;
            receiver.check(0, false, &mut random);
        }
        let taken = |bits: i32| format!("{:.1e}", f64::from(packets) * 2f64.powi(-bits));
        table.row([failures.to_string(), packets.to_string(), taken(32), taken(16)]);
    }
    table
}

/// Forged tags, tried on a receiver: 16 bits, so that some are right.
fn forging() -> [Finding; 2] {
    const TRIES: u64 = 1 << 22;
    const TAG_BITS: u32 = 16;
    let mut receiver = Authenticator::new(TAG_BITS, AlertConfig::default());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut first_alert, mut taken_before) = (None, 0);
    for number in 1..=TRIES {
        let verdict = receiver.check(0, false, &mut random);
        if receiver.stats().alerts > 0 && first_alert.is_none() {
            first_alert = Some(number);
        }
        taken_before += u64::from(first_alert.is_none() && verdict.accepted());
    }
    let taken = receiver.stats().forged;
    let expected = TRIES as f64 / f64::from(1 << TAG_BITS);
    let near = (taken as f64 - expected).abs() < 4.0 * expected.sqrt();
    let first_alert = first_alert.map_or("never".into(), |number| number.to_string());
    [
        Finding::new(
            "6.1",
            "a tag of b bits is right by chance once in 2^b packets",
            format!("{taken} of 2^22 with 16 bits, {expected:.0} expected"),
            near,
            "counted at a simulated receiver",
        ),
        Finding::new(
            "6.1",
            "consecutive failures raise an alert, so that forging is noticed before it succeeds",
            format!("alert at packet {first_alert}, {taken_before} forged ones taken before"),
            taken_before == 0,
            "after 16 failures in a row (unstated in the paper), where nobody else sends under the same address; the \
             attacks below have a forger who names an honest sender",
        ),
    ]
}

/// Table 1 for the paper's 16 nodes.
fn enforcement() -> Table {
    let title = "Table 1 for 16 nodes, 16 switches of 5 ports, 4 partitions, 100 invalid keys, one attacker in 16; \
                 Fig. 8 has the look-ups measured";
    let mut table = Table::new(title, &["scheme", "tables of a switch", "of all", "look-up for each packet"]);
    for row in tables::enforcement(&Enforcement::OF_16_NODES) {
        let (switch, total, lookup) = (row.switch_bytes, row.total_bytes, row.lookup_ns);
        table.row([row.scheme.into(), format!("{switch} B"), format!("{total} B"), format!("{lookup:.2} ns")]);
    }
    table
}

/// What getting keys around costs, by the paper's ways and two others.
fn distribution() -> Table {
    let title = "Keys for 16 adapters at 2.5 Gb/s, 2 us from end to end (section 5.1, and two other ways)";
    let mut table = Table::new(title, &["what", "packets", "bytes", "time"]);
    let cluster = Cluster { adapters: 16, members: 4, subnets: 4, peers: 15 };
    for Way { what, steps } in key_distribution::ways(&cluster) {
        let cost = key_distribution::cost(&steps, &Path::default());
        table.row([what, cost.packets.to_string(), cost.bytes.to_string(), super::us(time::to_ns(cost.time))]);
    }
    table
}
