//! Open MPI 4 and 5: everything through `pml cm` over `mtl ofi`; one-sided by what each has left.
//!
//! | | Open MPI 4 | Open MPI 5 |
//! |---|---|---|
//! | messages, inside a host too | provider | provider |
//! | windows on one host | shared memory (osc rdma over btl vader, osc sm) | the same (btl sm) |
//! | windows between or on sealed hosts | osc pt2pt, over the provider; not with MPI_THREAD_MULTIPLE | none: osc rdma would use btl tcp, in clear |

use std::path::Path;

use gambeson_proto::policy::IntraHost;

use super::command_line::{Carrier, Meaning, host_list, setting};
use super::{Dialect, OneSided, Programs, Request, Variable, libfabric_variables};

pub(super) const DIALECT_4: Dialect = Dialect {
    options: OPTIONS,
    meaning,
    spelling,
    variables: variables_4,
    agent: |agent| Ok(agent_4(agent)),
    one_sided: one_sided_4,
    programs: &["orterun", "orted"],
    seals_hosts: true,
};

pub(super) const DIALECT_5: Dialect = Dialect {
    options: OPTIONS,
    meaning,
    spelling,
    variables: variables_5,
    agent: |agent| Ok(agent_5(agent)),
    one_sided: one_sided_5,
    programs: &["prterun", "prte", "prted"],
    seals_hosts: true,
};

fn variables_4(request: &Request<'_>) -> Vec<Variable> {
    let mut variables = common(request);
    variables.push(Variable::new("OMPI_MCA_btl", "self,vader").or(|list| only(list, &["self", "vader", "sm"])));
    variables.push(if within_memory(request) {
        Variable::new("OMPI_MCA_osc", "rdma,sm,pt2pt").or(|list| only(list, &["rdma", "sm", "pt2pt"]))
    } else {
        Variable::new("OMPI_MCA_osc", "pt2pt")
    });
    variables
}

fn variables_5(request: &Request<'_>) -> Vec<Variable> {
    let mut variables = common(request);
    variables.push(Variable::new("OMPI_MCA_btl", "self,sm").or(|list| only(list, &["self", "sm", "vader"])));
    variables.push(Variable::new("OMPI_MCA_osc", "rdma,sm").or(|list| only(list, &["rdma", "sm"])));
    variables
}

fn common(request: &Request<'_>) -> Vec<Variable> {
    let mut variables = libfabric_variables(request);
    variables.push(Variable::new("OMPI_MCA_pml", "cm"));
    variables.push(Variable::new("OMPI_MCA_mtl", "ofi"));
    variables.push(Variable::new("OMPI_MCA_mtl_ofi_provider_include", "gambeson"));
    // Collectives over shared memory of their own would stay inside the host, in clear.
    if request.intra_host == IntraHost::Sealed {
        variables.push(Variable::new("OMPI_MCA_coll", "^sm,xhc,acoll"));
    }
    variables
}

fn only(list: &str, permitted: &[&str]) -> bool {
    !list.is_empty() && list.split(',').all(|component| permitted.contains(&component.trim()))
}

/// Whether windows may be in the memory that the processes share.
fn within_memory(request: &Request<'_>) -> bool {
    !request.several_hosts && request.intra_host == IntraHost::Mpi
}

fn one_sided_4(request: &Request<'_>) -> Result<(), OneSided> {
    if within_memory(request) {
        return Ok(());
    }
    Err(OneSided {
        to: Programs::WithThreads,
        cause: "Open MPI 4 moves one-sided data through the provider (osc pt2pt) only for programs without MPI_THREAD_MULTIPLE",
        remedy: "Start MPI with at most MPI_THREAD_SERIALIZED (mpi4py: MPI4PY_RC_THREAD_LEVEL=serialized), or use MPICH or Intel MPI",
    })
}

fn one_sided_5(request: &Request<'_>) -> Result<(), OneSided> {
    let cause = if request.several_hosts {
        "Open MPI 5 moves one-sided data between hosts over btl/tcp, past the provider and in clear"
    } else if request.intra_host == IntraHost::Sealed {
        "Open MPI 5 moves one-sided data inside a host through shared memory, in clear, and the policy asks for sealed hosts"
    } else {
        return Ok(());
    };
    Err(OneSided {
        to: Programs::All,
        cause,
        remedy: "Use MPICH, Intel MPI or Open MPI 4 for programs with windows, whose one-sided data passes the provider",
    })
}

// The agent takes the end of its ssh for the end of the job on that host, so the daemons there
// must stay attached to it, and none may start further daemons without an agent, or connect to others than the launcher.

fn agent_4(agent: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("OMPI_MCA_plm", "rsh".to_owned()),
        ("OMPI_MCA_plm_rsh_agent", agent.display().to_string()),
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".to_owned()),
        ("OMPI_MCA_routed_radix", ALL_HOSTS.to_owned()),
        ("OMPI_MCA_orte_leave_session_attached", "1".to_owned()),
    ]
}

fn agent_5(agent: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("PRTE_MCA_plm", "ssh".to_owned()),
        ("PRTE_MCA_plm_ssh_agent", agent.display().to_string()),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".to_owned()),
        ("PRTE_MCA_rml_base_radix", ALL_HOSTS.to_owned()),
        ("PRTE_MCA_prte_leave_session_attached", "1".to_owned()),
    ]
}

fn meaning(option: &str, values: &[String]) -> Vec<Meaning> {
    match (option, values) {
        (_, [name, program]) if AGENTS.contains(&name.as_str()) => {
            vec![Meaning::Carrier(Carrier::Program(program.clone()))]
        }
        (_, [name, value]) if name == "plm" => {
            let by_ssh = ["ssh", "rsh"].contains(&value.as_str());
            vec![Meaning::Carrier(if by_ssh { Carrier::Ssh } else { Carrier::Foreign })]
        }
        ("mca" | "gmca" | "omca" | "gomca", [name, value]) => {
            vec![Meaning::Sets { variable: format!("OMPI_MCA_{name}"), value: value.clone() }]
        }
        ("prtemca" | "gprtemca", [name, value]) => {
            vec![Meaning::Sets { variable: format!("PRTE_MCA_{name}"), value: value.clone() }]
        }
        ("x", values) => setting(values),
        ("H" | "host", values) => host_list(values),
        ("hostfile" | "machinefile" | "default-hostfile" | "add-hostfile", values) => {
            values.iter().cloned().map(Meaning::HostFile).collect()
        }
        ("add-host", values) => host_list(values),
        _ => Vec::new(),
    }
}

fn spelling(variable: &str) -> String {
    match (variable.strip_prefix("OMPI_MCA_"), variable.strip_prefix("PRTE_MCA_")) {
        (Some(parameter), _) => format!("--mca {parameter}"),
        (_, Some(parameter)) => format!("--prtemca {parameter}"),
        _ => format!("-x {variable}"),
    }
}

/// The width of a tree in which every daemon has the launcher for its parent; Open MPI 5 counts to it, and fails at a million.
const ALL_HOSTS: &str = "4096";

const AGENTS: [&str; 4] = ["plm_rsh_agent", "plm_ssh_agent", "orte_rsh_agent", "pls_rsh_agent"];

const OPTIONS: &[(&str, usize)] = &[
    ("n", 1),
    ("np", 1),
    ("c", 1),
    ("N", 1),
    ("npernode", 1),
    ("npersocket", 1),
    ("ppr", 1),
    ("mca", 2),
    ("gmca", 2),
    ("omca", 2),
    ("gomca", 2),
    ("prtemca", 2),
    ("gprtemca", 2),
    ("pmixmca", 2),
    ("gpmixmca", 2),
    ("x", 1),
    ("H", 1),
    ("host", 1),
    ("hostfile", 1),
    ("machinefile", 1),
    ("default-hostfile", 1),
    ("add-host", 1),
    ("add-hostfile", 1),
    ("wdir", 1),
    ("wd", 1),
    ("bind-to", 1),
    ("map-by", 1),
    ("rank-by", 1),
    ("cpu-list", 1),
    ("cpu-set", 1),
    ("cpus-per-proc", 1),
    ("cpus-per-rank", 1),
    ("rf", 1),
    ("rankfile", 1),
    ("output", 1),
    ("output-filename", 1),
    ("display", 1),
    ("stdin", 1),
    ("tune", 1),
    ("am", 1),
    ("app", 1),
    ("prefix", 1),
    ("path", 1),
    ("timeout", 1),
    ("personality", 1),
    ("dvm", 1),
    ("dvm-uri", 1),
    ("ompi-server", 1),
    ("pid", 1),
    ("namespace", 1),
    ("launch-agent", 1),
    ("preload-files", 1),
    ("report-pid", 1),
    ("report-uri", 1),
    ("runtime-options", 1),
    ("max-restarts", 1),
    ("max-vm-size", 1),
    ("num-connect-retries", 1),
    ("set-sid", 1),
    ("tmpdir", 1),
    ("xterm", 1),
    ("pmixam", 1),
];
