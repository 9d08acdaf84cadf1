//! Every operation the audit pushes a marker through, as data that auditor and probe share.

use crate::mpi::{Epoch, Form, Mode};

/// A row of the audit's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// What the standard calls it, and the variant.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One `MPI_Send` of so many bytes.
    Sized(usize),
    Send(Mode, Way),
    Receive(Probing),
    Exchange(Exchange),
    Partitioned,
    Derived(Shape),
    Collective(Collective, Form),
    Neighbourhood(Neighbourhood, Form),
    OneSided(Access, Epoch, Provision),
    Spawn,
}

/// The three forms of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Blocking,
    Nonblocking,
    Persistent,
}

/// The ways of looking before receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probing {
    Probe,
    Iprobe,
    Mprobe,
    Improbe,
}

/// Sending and receiving in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    Sendrecv,
    SendrecvReplace,
    Isendrecv,
    IsendrecvReplace,
}

/// Derived types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Vector,
    Indexed,
    Struct,
}

/// Collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    ReduceScatter,
    ReduceScatterBlock,
    Scan,
    Exscan,
}

/// Neighbourhood collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbourhood {
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
}

/// One-sided accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Put,
    Get,
    Accumulate,
    GetAccumulate,
    FetchAndOp,
    CompareAndSwap,
    Rput,
    Rget,
    Raccumulate,
    RgetAccumulate,
}

/// Who provides a window's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provision {
    Create,
    Allocate,
}

/// How much of its marker an operation can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// The whole of it.
    Marker,
    /// Its first eight bytes.
    Word,
    /// The message is shorter than any part that could be told from chance.
    Nothing,
}

impl Operation {
    /// Whether it needs a window.
    pub(crate) fn is_one_sided(&self) -> bool {
        matches!(self.kind, Kind::OneSided(..))
    }

    /// Whether it can show anything of its marker.
    pub(crate) fn is_visible(&self) -> bool {
        self.visible() != Visible::Nothing
    }

    /// How much of its marker it can show.
    pub(crate) fn visible(&self) -> Visible {
        match self.kind {
            Kind::Sized(0..8) => Visible::Nothing,
            Kind::Sized(8..16) | Kind::OneSided(Access::FetchAndOp | Access::CompareAndSwap, ..) => Visible::Word,
            _ => Visible::Marker,
        }
    }
}

/// Sizes of the `MPI_Send` ladder.
const LADDER: [usize; 14] =
    [0, 1, 8, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20];

/// All of it, in the order of the table. What may take the job down with it comes last.
pub(crate) fn operations() -> Vec<Operation> {
    let mut plan = Vec::new();
    let mut add = |name: String, kind: Kind| plan.push(Operation { name, kind });

    for size in LADDER {
        add(format!("MPI_Send, {}", bytes(size)), Kind::Sized(size));
    }
    for (way, prefix, suffix) in [(Way::Blocking, "", ""), (Way::Nonblocking, "I", ""), (Way::Persistent, "", "_init")]
    {
        for (mode, letter) in
            [(Mode::Standard, ""), (Mode::Synchronous, "s"), (Mode::Buffered, "b"), (Mode::Ready, "r")]
        {
            let word = format!("{prefix}{letter}send{suffix}");
            add(format!("MPI_{}", capital(&word)), Kind::Send(mode, way));
        }
    }
    for (name, probing) in [
        ("MPI_Probe + MPI_Recv", Probing::Probe),
        ("MPI_Iprobe + MPI_Recv", Probing::Iprobe),
        ("MPI_Mprobe + MPI_Mrecv", Probing::Mprobe),
        ("MPI_Improbe + MPI_Imrecv", Probing::Improbe),
    ] {
        add(name.into(), Kind::Receive(probing));
    }
    for (name, exchange) in [
        ("MPI_Sendrecv", Exchange::Sendrecv),
        ("MPI_Sendrecv_replace", Exchange::SendrecvReplace),
        ("MPI_Isendrecv", Exchange::Isendrecv),
        ("MPI_Isendrecv_replace", Exchange::IsendrecvReplace),
    ] {
        add(name.into(), Kind::Exchange(exchange));
    }
    for (name, shape) in [("vector", Shape::Vector), ("indexed", Shape::Indexed), ("struct", Shape::Struct)] {
        add(format!("MPI_Send, {name} type"), Kind::Derived(shape));
    }
    let collectives = |form: Form| {
        let world = COLLECTIVES.map(|(name, which)| (formed(name, form), Kind::Collective(which, form)));
        let ring = NEIGHBOURHOODS.map(|(name, which)| (formed(name, form), Kind::Neighbourhood(which, form)));
        world.into_iter().chain(ring)
    };
    for form in [Form::Blocking, Form::Nonblocking] {
        collectives(form).for_each(|(name, kind)| add(name, kind));
    }
    for (epoch_name, epoch) in [("fence", Epoch::Fence), ("lock", Epoch::Lock), ("post-start", Epoch::Pscw)] {
        for (name, access) in ACCESSES {
            add(format!("{name}, {epoch_name}"), Kind::OneSided(access, epoch, Provision::Create));
        }
    }
    for (name, access) in REQUEST_ACCESSES {
        add(format!("{name}, lock"), Kind::OneSided(access, Epoch::Lock, Provision::Create));
    }
    for (name, access) in ACCESSES {
        add(format!("{name}, MPI_Win_allocate"), Kind::OneSided(access, Epoch::Lock, Provision::Allocate));
    }
    // Behind the one-sided operations: Intel MPI 2021.18 crashes in MPI_Rput when a persistent
    // collective was freed before, whatever carries its messages.
    collectives(Form::Persistent).for_each(|(name, kind)| add(name, kind));
    add("MPI_Psend_init".into(), Kind::Partitioned);
    add("MPI_Comm_spawn".into(), Kind::Spawn);
    plan
}

const COLLECTIVES: [(&str, Collective); 16] = [
    ("bcast", Collective::Bcast),
    ("reduce", Collective::Reduce),
    ("allreduce", Collective::Allreduce),
    ("gather", Collective::Gather),
    ("gatherv", Collective::Gatherv),
    ("scatter", Collective::Scatter),
    ("scatterv", Collective::Scatterv),
    ("allgather", Collective::Allgather),
    ("allgatherv", Collective::Allgatherv),
    ("alltoall", Collective::Alltoall),
    ("alltoallv", Collective::Alltoallv),
    ("alltoallw", Collective::Alltoallw),
    ("reduce_scatter", Collective::ReduceScatter),
    ("reduce_scatter_block", Collective::ReduceScatterBlock),
    ("scan", Collective::Scan),
    ("exscan", Collective::Exscan),
];

const NEIGHBOURHOODS: [(&str, Neighbourhood); 5] = [
    ("neighbor_allgather", Neighbourhood::Allgather),
    ("neighbor_allgatherv", Neighbourhood::Allgatherv),
    ("neighbor_alltoall", Neighbourhood::Alltoall),
    ("neighbor_alltoallv", Neighbourhood::Alltoallv),
    ("neighbor_alltoallw", Neighbourhood::Alltoallw),
];

const ACCESSES: [(&str, Access); 6] = [
    ("MPI_Put", Access::Put),
    ("MPI_Get", Access::Get),
    ("MPI_Accumulate", Access::Accumulate),
    ("MPI_Get_accumulate", Access::GetAccumulate),
    ("MPI_Fetch_and_op", Access::FetchAndOp),
    ("MPI_Compare_and_swap", Access::CompareAndSwap),
];

const REQUEST_ACCESSES: [(&str, Access); 4] = [
    ("MPI_Rput", Access::Rput),
    ("MPI_Rget", Access::Rget),
    ("MPI_Raccumulate", Access::Raccumulate),
    ("MPI_Rget_accumulate", Access::RgetAccumulate),
];

fn formed(name: &str, form: Form) -> String {
    match form {
        Form::Blocking => format!("MPI_{}", capital(name)),
        Form::Nonblocking => format!("MPI_I{name}"),
        Form::Persistent => format!("MPI_{}_init", capital(name)),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect())
        .unwrap_or_default()
}

/// A size as people write it: 64 B, 4 KiB, 1 MiB.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        0..1024 => format!("{size} B"),
        _ if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standard_and_unique() {
        let plan = operations();
        let names: std::collections::HashSet<_> = plan.iter().map(|operation| operation.name.as_str()).collect();
        assert_eq!(names.len(), plan.len());
        for name in [
            "MPI_Send",
            "MPI_Ssend",
            "MPI_Ibsend",
            "MPI_Rsend_init",
            "MPI_Ireduce_scatter_block",
            "MPI_Alltoallw_init",
            "MPI_Ineighbor_alltoallw",
            "MPI_Put, fence",
            "MPI_Send, 64 MiB",
            "MPI_Send, 0 B",
            "MPI_Exscan",
        ] {
            assert!(names.contains(name), "{name} is missing");
        }
    }

    #[test]
    fn what_is_too_short_to_see_is_marked_so() {
        let visible = |name: &str| operations().iter().find(|operation| operation.name == name).map(Operation::visible);
        assert_eq!(visible("MPI_Send, 1 B"), Some(Visible::Nothing));
        assert_eq!(visible("MPI_Send, 8 B"), Some(Visible::Word));
        assert_eq!(visible("MPI_Send, 16 B"), Some(Visible::Marker));
        assert_eq!(visible("MPI_Fetch_and_op, lock"), Some(Visible::Word));
    }
}
