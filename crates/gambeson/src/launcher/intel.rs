//! Intel MPI, whose launcher is a Hydra with options and variables of its own.

use gambeson_proto::policy::IntraHost;

use super::mpich::{HYDRA_OPTIONS, hydra_meaning};
use super::{Dialect, Request, Variable, libfabric_variables};

pub(super) const DIALECT: Dialect = Dialect {
    options: OPTIONS,
    meaning: hydra_meaning,
    spelling: |variable| format!("-genv {variable}"),
    variables,
    agent: |agent| {
        Ok(vec![
            ("I_MPI_HYDRA_BOOTSTRAP", "rsh".to_owned()),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", agent.display().to_string()),
            // Else hosts beyond the sixteenth would be reached from others, where there is no agent: no tree, but all at once.
            ("I_MPI_HYDRA_BRANCH_COUNT", "0".to_owned()),
        ])
    },
    one_sided: |_| Ok(()),
    programs: &["mpiexec", "mpiexec.hydra", "hydra_bstrap_proxy", "hydra_pmi_proxy"],
    seals_hosts: false,
};

fn variables(request: &Request<'_>) -> Vec<Variable> {
    let mut variables = libfabric_variables(request);
    match request.intra_host {
        // Who asks for libfabric alone asks for more than the policy does.
        IntraHost::Mpi => variables.push(Variable::new("I_MPI_FABRICS", "shm:ofi").or(|value| value == "ofi")),
        IntraHost::Sealed => {
            variables.push(Variable::new("I_MPI_FABRICS", "ofi"));
            // Otherwise collectives inside a host go through shared memory of their own.
            variables.push(Variable::new("I_MPI_COLL_INTRANODE", "pt2pt"));
        }
    }
    variables.push(Variable::new("I_MPI_OFI_PROVIDER", "gambeson"));
    // Intel's setup script leads to the libfabric that came with the MPI. Who did not run it would
    // get the distribution's, if any, for programs in C and Fortran.
    if let Some(libfabric) = request.libfabric {
        variables.push(Variable::new("I_MPI_OFI_LIBRARY", libfabric.path.display().to_string()).or(|_| true));
    }
    variables
}

/// Hydra's options, and those that are Intel's alone.
const OPTIONS: &[(&str, usize)] = &{
    const OWN: [(&str, usize); 9] = [
        ("genvexcl", 1),
        ("genvexcllist", 1),
        ("gtool", 1),
        ("gtoolfile", 1),
        ("hosts-group", 1),
        ("s", 1),
        ("grr", 1),
        ("cpu-bind", 1),
        ("tmpdir", 1),
    ];
    let mut options = [("", 0); HYDRA_OPTIONS.len() + OWN.len()];
    let mut place = 0;
    while place < options.len() {
        options[place] = if place < OWN.len() { OWN[place] } else { HYDRA_OPTIONS[place - OWN.len()] };
        place += 1;
    }
    options
};
