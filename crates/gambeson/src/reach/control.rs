//! Where a launcher's command for another host says how its processes there reach the launcher.
//!
//! | launcher | what it says |
//! |---|---|
//! | MPICH | `--control-port h1:41000` |
//! | Intel MPI | `--upstream-host h1 --upstream-port 41000` |
//! | Open MPI | `prte_hnp_uri "name;tcp://10.1.0.1:41000:24"`, `orte_hnp_uri` before that, and the same for the parent |

use std::net::IpAddr;
use std::ops::Range;

/// The place of a launcher's control channel in a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// Where the launcher listens on this host.
    pub(crate) port: u16,
    /// The first address that the launcher says it has, where it says one.
    pub(crate) address: Option<IpAddr>,
    parts: Vec<(Range<usize>, Part)>,
}

/// What a part of the command is to say instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Host,
    Port,
    HostAndPort,
    /// What stands behind `tcp://`; Open MPI believes in no loopback address, so it gets one that its host has.
    Uri {
        masked: bool,
    },
}

impl Control {
    /// Finds it; none if there is none, or more than one.
    pub(crate) fn find(command: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut ports = Vec::new();
        let mut address = None;
        for (option, part) in
            [("--control-port ", Part::HostAndPort), ("--upstream-host ", Part::Host), ("--upstream-port ", Part::Port)]
        {
            for place in values(command, option, |end| end.is_whitespace()) {
                let value = &command[place.clone()];
                match part {
                    Part::HostAndPort => ports.push(value.rsplit_once(':')?.1.parse().ok()?),
                    Part::Port => ports.push(value.parse().ok()?),
                    Part::Host | Part::Uri { .. } => {}
                }
                parts.push((place, part));
            }
        }
        if command.contains("_hnp_uri") {
            for place in values(command, "tcp://", |end| end.is_whitespace() || "\"'\\;".contains(end)) {
                let mut fields = command[place.clone()].split(':');
                let addresses = fields.next()?;
                ports.push(fields.next()?.parse().ok()?);
                address = address.or_else(|| addresses.split(',').next()?.parse().ok());
                parts.push((place, Part::Uri { masked: fields.next().is_some() }));
            }
        }
        parts.sort_by_key(|(place, _)| place.start);
        let port = *ports.first()?;
        ports.iter().all(|other| *other == port).then_some(Self { port, address, parts })
    }

    /// The command with a port of the host that it is for; `own` is an address of that host.
    pub(crate) fn rewrite(&self, command: &str, port: u16, own: IpAddr) -> String {
        let mut rewritten = String::new();
        let mut from = 0;
        for (place, part) in &self.parts {
            rewritten += &command[from..place.start];
            rewritten += &match part {
                Part::Host => LOOPBACK.to_owned(),
                Part::Port => port.to_string(),
                Part::HostAndPort => format!("{LOOPBACK}:{port}"),
                Part::Uri { masked: true } => format!("{own}:{port}:24"),
                Part::Uri { masked: false } => format!("{own}:{port}"),
            };
            from = place.end;
        }
        rewritten + &command[from..]
    }
}

/// Where what follows each `mark` stands, up to an end.
fn values(command: &str, mark: &str, ends: impl Fn(char) -> bool) -> Vec<Range<usize>> {
    let starts = command.match_indices(mark).map(|(place, _)| place + mark.len());
    starts.map(|start| start..command[start..].find(&ends).map_or(command.len(), |length| start + length)).collect()
}

const LOOPBACK: &str = "127.0.0.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, port: u16, rewritten: &str) {
        let control = Control::find(command).unwrap();
        assert_eq!(control.port, port);
        assert_eq!(control.rewrite(command, 9, IpAddr::from([10, 77, 0, 2])), rewritten);
    }

    #[test]
    fn each_launchers_address_is_found_and_replaced() {
        check(
            "\"/mpi/hydra_pmi_proxy\" --control-port h1:41000 --rmk user --pgid 0 --proxy-id 1",
            41000,
            "\"/mpi/hydra_pmi_proxy\" --control-port 127.0.0.1:9 --rmk user --pgid 0 --proxy-id 1",
        );
        check(
            "/mpi/hydra_bstrap_proxy --upstream-host h1 --upstream-port 41000 --pgid 0 --tree-width 16",
            41000,
            "/mpi/hydra_bstrap_proxy --upstream-host 127.0.0.1 --upstream-port 9 --pgid 0 --tree-width 16",
        );
        check(
            "prted --prtemca prte_hnp_uri \"prterun-h1-7@0.0;tcp://10.77.0.1:41000:24\" --prtemca prte_parent_uri \"a;tcp://10.77.0.1:41000:24\"",
            41000,
            "prted --prtemca prte_hnp_uri \"prterun-h1-7@0.0;tcp://10.77.0.2:9:24\" --prtemca prte_parent_uri \"a;tcp://10.77.0.2:9:24\"",
        );
        check(
            "orted -mca orte_hnp_uri \"34.0;tcp://10.77.0.1,10.78.0.1:41000\"",
            41000,
            "orted -mca orte_hnp_uri \"34.0;tcp://10.77.0.2:9\"",
        );
    }

    #[test]
    fn a_command_of_which_that_is_not_known_is_none() {
        for command in [
            "true",
            "proxy --control-port h1",
            "proxy --control-port h1:1 --upstream-port 2",
            "prted prte_hnp_uri \"a;tcp://10.77.0.1:1:24;tcp://10.77.0.3:2:24\"",
        ] {
            assert_eq!(Control::find(command), None, "{command}");
        }
    }
}
