//! Slurm's srun, which starts the ranks of any MPI: the environment is made for all of them at once.

use super::command_line::{Meaning, host_list};
use super::{Dialect, Request, Variable, intel, mpich, openmpi};

pub(super) const DIALECT: Dialect = Dialect {
    options: OPTIONS,
    meaning,
    spelling: |variable| format!("--export={variable}"),
    variables,
    agent: |_| {
        Err(
            "srun carries what it is given in clear; use the MPI's own mpiexec inside the allocation, which goes over ssh",
        )
    },
    one_sided: |request| (openmpi::DIALECT_5.one_sided)(request),
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

fn meaning(option: &str, values: &[String]) -> Vec<Meaning> {
    match (option, values) {
        ("export", [list]) if !list.split(',').any(|item| item == "ALL") => vec![Meaning::Strips],
        ("export-file", _) => vec![Meaning::Strips],
        ("export", [list]) => list
            .split(',')
            .filter_map(|item| item.split_once('='))
            .map(|(variable, value)| Meaning::Sets { variable: variable.to_owned(), value: value.to_owned() })
            .collect(),
        ("w" | "nodelist", values) => host_list(values),
        _ => Vec::new(),
    }
}

const OPTIONS: &[(&str, usize)] = &[
    ("n", 1),
    ("ntasks", 1),
    ("N", 1),
    ("nodes", 1),
    ("c", 1),
    ("cpus-per-task", 1),
    ("w", 1),
    ("nodelist", 1),
    ("x", 1),
    ("exclude", 1),
    ("p", 1),
    ("partition", 1),
    ("t", 1),
    ("time", 1),
    ("A", 1),
    ("account", 1),
    ("J", 1),
    ("job-name", 1),
    ("o", 1),
    ("output", 1),
    ("e", 1),
    ("error", 1),
    ("i", 1),
    ("input", 1),
    ("D", 1),
    ("chdir", 1),
    ("m", 1),
    ("distribution", 1),
    ("mem", 1),
    ("mpi", 1),
    ("export", 1),
    ("export-file", 1),
    ("jobid", 1),
    ("r", 1),
    ("relative", 1),
    ("C", 1),
    ("constraint", 1),
    ("G", 1),
    ("gpus", 1),
    ("q", 1),
    ("qos", 1),
    ("ntasks-per-node", 1),
    ("cpu-bind", 1),
    ("gres", 1),
    ("reservation", 1),
];
