//! No MPI: a program that is started as it is, for links. MPI in it is refused, by the guard and by the agent.

use super::Dialect;

pub(super) const DIALECT: Dialect = Dialect {
    options: &[],
    meaning: |_, _| Vec::new(),
    spelling: |variable| variable.to_owned(),
    variables: |_| Vec::new(),
    agent: |_| Err("a program that is no launcher starts nothing on other hosts"),
    one_sided: |_| Ok(()),
    programs: &[],
    seals_hosts: true,
};
