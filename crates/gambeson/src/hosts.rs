//! Which hosts the job will use, as far as the command line, host files and the batch system say.

use std::env;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use crate::failure::Failure;
use crate::launcher::command_line::{Meaning, Said, host_of};
use crate::machine;

/// The hosts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// Other than this one, in the order they were named. A batch system's ranges stay as written.
    pub(crate) remote: Vec<String>,
}

impl Hosts {
    pub(crate) fn several(&self) -> bool {
        !self.remote.is_empty()
    }

    /// What a command line says, else what its surroundings say.
    pub(crate) fn find(said: &[Said]) -> Self {
        let mut named: Vec<String> = Vec::new();
        for said in said {
            match &said.meaning {
                Meaning::Hosts(hosts) => named.extend(hosts.iter().cloned()),
                Meaning::HostFile(file) => named.extend(host_file(file)),
                _ => {}
            }
        }
        if named.is_empty() {
            named = surroundings();
        }
        Self::of(named)
    }

    /// These, but for this one.
    pub(crate) fn of(named: Vec<String>) -> Self {
        let mut remote: Vec<String> = Vec::new();
        for host in named {
            if !remote.contains(&host) && !is_here(&host) {
                remote.push(host);
            }
        }
        Self { remote }
    }
}

/// The name of an order.
pub(crate) fn random() -> Result<[u8; 16], Failure> {
    let mut id = [0; 16];
    let drawn = getrandom::fill(&mut id);
    drawn.map_err(|cause| Failure::system(format!("the kernel gives no random numbers ({cause})")))?;
    Ok(id)
}

fn host_file(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(host_of).filter(|host| !host.is_empty()).collect()
}

fn surroundings() -> Vec<String> {
    for variable in HOST_FILES {
        if let Ok(path) = env::var(variable) {
            return host_file(&path);
        }
    }
    slurm_allocation().unwrap_or_default()
}

/// The hosts of the Slurm allocation around this process, whose ranges stay as written.
pub(crate) fn slurm_allocation() -> Option<Vec<String>> {
    let list = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"].iter().find_map(|variable| env::var(variable).ok())?;
    // A batch script's host is told what Slurm calls it.
    let here = env::var("SLURMD_NODENAME").is_ok_and(|own| own == list);
    Some(if here { Vec::new() } else { vec![list] })
}

/// Whether a name or address is this host's.
fn is_here(host: &str) -> bool {
    let own = machine::host_name();
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(&own) {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_own(address);
    }
    if first_label(host) == first_label(&own) {
        return true;
    }
    let addresses = (host, 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect::<Vec<_>>());
    addresses.is_ok_and(|addresses| !addresses.is_empty() && addresses.into_iter().all(is_own))
}

/// Only an address of one's own can be bound.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Where batch systems and launchers are told the hosts.
const HOST_FILES: [&str; 7] = [
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "PBS_NODEFILE",
    "PE_HOSTFILE",
    "LSB_DJOB_HOSTFILE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known_under_all_its_names() {
        for here in ["localhost", "127.0.0.1", "127.1.2.3", "::1", &machine::host_name()] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["192.0.2.1", "2001:db8::1", "no-such-host.invalid"] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn a_command_line_names_hosts_in_many_ways() {
        let file = env::temp_dir().join(format!("gambeson-hosts-{}", std::process::id()));
        fs::write(&file, "# ours\nlocalhost slots=2\n192.0.2.7:4\nuser@192.0.2.8 max_slots=1\n\n").unwrap();
        let said = |meaning| Said { meaning, written: String::new(), place: 0..0 };
        let hosts = Hosts::find(&[
            said(Meaning::HostFile(file.display().to_string())),
            said(Meaning::Hosts(vec!["192.0.2.9".to_owned(), "192.0.2.7".to_owned(), "127.0.0.1".to_owned()])),
        ]);
        fs::remove_file(&file).unwrap();
        assert_eq!(hosts.remote, ["192.0.2.7", "192.0.2.8", "192.0.2.9"]);
    }
}
