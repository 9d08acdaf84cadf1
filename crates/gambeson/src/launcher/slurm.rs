//! Slurm's srun, which starts the ranks of any MPI, through a daemon on each host.
//!
//! What each rank needs goes through the daemons on the command line (`gambeson enter`), for a site may change the
//! environment. The secret itself stays in this host's memory, so that all ranks must be here, and which hosts there will be
//! must be known before; unless Gambeson's plug-in is in srun, which takes it to the others ([`crate::reach::step`]).

use std::env;
use std::ffi::OsString;

use super::command_line::{Meaning, Said, host_list};
use super::{Dialect, OneSided, Programs, Request, Variable, intel, mpich, openmpi};
use crate::failure::Failure;
use crate::hosts::{Hosts, slurm_allocation};
use crate::machine;

pub(super) const DIALECT: Dialect = Dialect {
    options: OPTIONS,
    meaning,
    spelling: |variable| format!("--export={variable}"),
    variables,
    agent: |_| {
        Err(
            "srun carries what it is given in clear, and Gambeson's plug-in for Slurm, of this version, is not in it; ask the administrator for it, or use the MPI's own mpiexec inside the allocation, which goes over ssh",
        )
    },
    one_sided: |request| {
        (openmpi::DIALECT_5.one_sided)(request).map_err(|refused| OneSided { to: Programs::OfOpenMpi, ..refused })
    },
    programs: &[],
    seals_hosts: false,
};

fn variables(request: &Request<'_>) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    for dialect in [&mpich::DIALECT, &intel::DIALECT, &openmpi::DIALECT_5] {
        for variable in (dialect.variables)(request) {
            if variables.iter().all(|known| known.name != variable.name) {
                variables.push(variable);
            }
        }
    }
    variables
}

/// The hosts of a step: the allocation's, or the one that the command line holds it to; with the plug-in whichever srun
/// chooses.
pub(crate) fn hosts(said: &[Said], arguments: &[OsString], plugin: bool) -> Result<Hosts, Failure> {
    let in_parts = arguments.iter().any(|argument| argument == ":")
        || said.iter().any(|said| said.written.starts_with("--het-group"))
        || env::var_os("SLURM_HET_SIZE").is_some();
    let elsewhere = in_parts || said.iter().any(|said| said.meaning == Meaning::Elsewhere);
    let known = held_to(said).or_else(slurm_allocation).filter(|_| !elsewhere);
    match known {
        Some(hosts) => Ok(Hosts::of(hosts)),
        None if plugin && in_parts => Err(Failure::refused(
            "srun would start a step in several parts (a heterogeneous job), for each of which the job's secret would have to be taken to its hosts; start one part, or use the MPI's own mpiexec",
        )),
        None if plugin => Ok(Hosts { remote: vec!["those that srun chooses".to_owned()] }),
        None => Err(Failure::refused(format!(
            "srun chooses the hosts of this job when it runs, and the job's secret is in the memory of this host alone; run inside an allocation of this host (sbatch, salloc), or say: srun -N 1 -w {}; or ask the administrator for Gambeson's plug-in for Slurm, of this version",
            machine::host_name()
        ))),
    }
}

/// How `gambeson run` speaks to the plug-in in srun: a question in recognising it, and later the number of the descriptor
/// that has the job's files.
pub(crate) const VARIABLE: &str = "GAMBESON_SLURM";
/// In which tasks find why their host has no files.
pub(crate) const REFUSED: &str = "GAMBESON_REFUSED";
/// How the plug-in's word for itself begins, whatever its version.
pub(crate) const OF_PLUGIN: &str = "GBSNSLM";

/// The hosts that -w names, if -N leaves room for no others: by itself -w is where a step begins.
fn held_to(said: &[Said]) -> Option<Vec<String>> {
    // The last word counts.
    let count = said.iter().rev().find_map(|said| match &said.meaning {
        Meaning::HostCount(count) => Some(count.as_str()),
        _ => None,
    })?;
    let named = said.iter().rev().find_map(|said| match &said.meaning {
        Meaning::Hosts(hosts) => Some(hosts.clone()),
        _ => None,
    });
    named.filter(|_| ["1", "1-1"].contains(&count))
}

fn meaning(option: &str, values: &[String]) -> Vec<Meaning> {
    match (option, values) {
        ("export", [list]) => {
            let settings = list.split(',').filter_map(|item| item.split_once('='));
            settings
                .map(|(variable, value)| Meaning::Sets { variable: variable.to_owned(), value: value.to_owned() })
                .collect()
        }
        // Slurm takes what is unmistakable of a long name.
        (option, _) if option.starts_with("mu") && "multi-prog".starts_with(option) => vec![Meaning::ProgramsByFile],
        ("w" | "nodelist", values) => host_list(values),
        ("N" | "nodes", [count]) => vec![Meaning::HostCount(count.clone())],
        // Hosts out of another allocation, of another cluster, or of a file.
        ("jobid" | "M" | "clusters" | "het-group" | "F" | "nodefile" | "Z" | "no-allocate", _) => {
            vec![Meaning::Elsewhere]
        }
        // Values may be written onto short options.
        (_, []) if option.starts_with('N') => vec![Meaning::HostCount(option[1..].to_owned())],
        (_, []) if option.starts_with(['F', 'M']) => vec![Meaning::Elsewhere],
        (_, []) if option.starts_with('w') => host_list(&[option[1..].to_owned()]),
        _ => Vec::new(),
    }
}

/// As `srun --help` and its manual list them, those whose value may be a word of its own.
const OPTIONS: &[(&str, usize)] = &[
    ("A", 1),
    ("B", 1),
    ("C", 1),
    ("D", 1),
    ("F", 1),
    ("G", 1),
    ("J", 1),
    ("L", 1),
    ("M", 1),
    ("N", 1),
    ("S", 1),
    ("T", 1),
    ("W", 1),
    ("b", 1),
    ("c", 1),
    ("d", 1),
    ("e", 1),
    ("i", 1),
    ("m", 1),
    ("n", 1),
    ("o", 1),
    ("p", 1),
    ("q", 1),
    ("r", 1),
    ("t", 1),
    ("w", 1),
    ("x", 1),
    ("accel-bind", 1),
    ("account", 1),
    ("acctg-freq", 1),
    ("bb", 1),
    ("bbf", 1),
    ("bcast-exclude", 1),
    ("begin", 1),
    ("chdir", 1),
    ("cluster-constraint", 1),
    ("clusters", 1),
    ("comment", 1),
    ("constraint", 1),
    ("container", 1),
    ("core-spec", 1),
    ("cores-per-socket", 1),
    ("cpu-bind", 1),
    ("cpu-freq", 1),
    ("cpus-per-gpu", 1),
    ("cpus-per-task", 1),
    ("deadline", 1),
    ("delay-boot", 1),
    ("dependency", 1),
    ("distribution", 1),
    ("epilog", 1),
    ("error", 1),
    ("exclude", 1),
    ("export", 1),
    ("extra-node-info", 1),
    ("gid", 1),
    ("gpu-bind", 1),
    ("gpu-freq", 1),
    ("gpus", 1),
    ("gpus-per-node", 1),
    ("gpus-per-socket", 1),
    ("gpus-per-task", 1),
    ("gres", 1),
    ("gres-flags", 1),
    ("het-group", 1),
    ("hint", 1),
    ("input", 1),
    ("job-name", 1),
    ("jobid", 1),
    ("licenses", 1),
    ("mail-type", 1),
    ("mail-user", 1),
    ("mcs-label", 1),
    ("mem", 1),
    ("mem-bind", 1),
    ("mem-per-cpu", 1),
    ("mem-per-gpu", 1),
    ("mincpus", 1),
    ("mpi", 1),
    ("msg-timeout", 1),
    ("network", 1),
    ("nodefile", 1),
    ("nodelist", 1),
    ("nodes", 1),
    ("ntasks", 1),
    ("ntasks-per-core", 1),
    ("ntasks-per-gpu", 1),
    ("ntasks-per-node", 1),
    ("ntasks-per-socket", 1),
    ("open-mode", 1),
    ("output", 1),
    ("partition", 1),
    ("power", 1),
    ("prefer", 1),
    ("priority", 1),
    ("profile", 1),
    ("prolog", 1),
    ("qos", 1),
    ("relative", 1),
    ("reservation", 1),
    ("signal", 1),
    ("slurmd-debug", 1),
    ("sockets-per-node", 1),
    ("switches", 1),
    ("task-epilog", 1),
    ("task-prolog", 1),
    ("thread-spec", 1),
    ("threads", 1),
    ("threads-per-core", 1),
    ("time", 1),
    ("time-min", 1),
    ("tmp", 1),
    ("tres-per-task", 1),
    ("uid", 1),
    ("wait", 1),
    ("wckey", 1),
];
