//! MPICH, whose Hydra passes the whole environment to every rank.

use std::path::Path;

use gambeson_proto::policy::IntraHost;

use super::command_line::{Carrier, Meaning, host_list, setting};
use super::{Dialect, Request, Variable, libfabric_variables};

pub(super) const DIALECT: Dialect = Dialect {
    options: HYDRA_OPTIONS,
    meaning: hydra_meaning,
    spelling: |variable| format!("-genv {variable}"),
    variables,
    agent: |agent| Ok(hydra_agent(agent)),
    one_sided: |_| Ok(()),
    programs: &["mpiexec", "mpiexec.hydra", "mpiexec.mpich", "hydra_pmi_proxy"],
    seals_hosts: false,
};

fn variables(request: &Request<'_>) -> Vec<Variable> {
    let mut variables = libfabric_variables(request);
    variables.push(Variable::new("MPIR_CVAR_CH4_NETMOD", "ofi"));
    variables.push(match request.intra_host {
        // Who turns shared memory off asks for more than the policy does.
        IntraHost::Mpi => Variable::new("MPIR_CVAR_NOLOCAL", "0").or(|_| true),
        IntraHost::Sealed => Variable::new("MPIR_CVAR_NOLOCAL", "1").or(truth),
    });
    variables
}

/// Hydra's ways of writing "yes".
fn truth(value: &str) -> bool {
    ["1", "yes", "true", "on"].contains(&value.to_ascii_lowercase().as_str())
}

fn hydra_agent(agent: &Path) -> Vec<(&'static str, String)> {
    vec![("HYDRA_LAUNCHER", "rsh".to_owned()), ("HYDRA_LAUNCHER_EXEC", agent.display().to_string())]
}

/// What Hydra's options say; Intel's is a Hydra too.
pub(super) fn hydra_meaning(option: &str, values: &[String]) -> Vec<Meaning> {
    match option {
        "genv" | "env" => setting(values),
        "genvnone" | "envnone" => vec![Meaning::Strips],
        // A list is complete when it names what was set; nobody writes that.
        "genvlist" | "envlist" | "genvexcl" | "genvexcllist" => vec![Meaning::Strips],
        "host" | "hosts" => host_list(values),
        "f" | "hostfile" | "machinefile" | "machine" => values.iter().cloned().map(Meaning::HostFile).collect(),
        "launcher" | "bootstrap" => values.iter().map(|value| Meaning::Carrier(carrier(value))).collect(),
        "launcher-exec" | "bootstrap-exec" => {
            values.iter().cloned().map(|program| Meaning::Carrier(Carrier::Program(program))).collect()
        }
        _ => Vec::new(),
    }
}

fn carrier(name: &str) -> Carrier {
    if ["ssh", "rsh"].contains(&name) { Carrier::Ssh } else { Carrier::Foreign }
}

pub(super) const HYDRA_OPTIONS: &[(&str, usize)] = &[
    ("n", 1),
    ("np", 1),
    ("genv", 2),
    ("env", 2),
    ("genvlist", 1),
    ("envlist", 1),
    ("f", 1),
    ("hostfile", 1),
    ("machinefile", 1),
    ("machine", 1),
    ("host", 1),
    ("hosts", 1),
    ("rankmap", 1),
    ("wdir", 1),
    ("dir", 1),
    ("configfile", 1),
    ("path", 1),
    ("arch", 1),
    ("memory-alloc-kinds", 1),
    ("launcher", 1),
    ("launcher-exec", 1),
    ("bootstrap", 1),
    ("bootstrap-exec", 1),
    ("rmk", 1),
    ("topolib", 1),
    ("bind-to", 1),
    ("map-by", 1),
    ("membind", 1),
    ("demux", 1),
    ("errfile-pattern", 1),
    ("outfile-pattern", 1),
    ("prepend-pattern", 1),
    ("gpus-per-proc", 1),
    ("gpu-subdevs-per-proc", 1),
    ("iface", 1),
    ("localhost", 1),
    ("nameserver", 1),
    ("order-nodes", 1),
    ("ppn", 1),
    ("perhost", 1),
    ("usize", 1),
    ("ckpointlib", 1),
    ("ckpoint-prefix", 1),
    ("ckpoint-interval", 1),
];
