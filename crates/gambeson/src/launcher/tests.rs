use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::command_line::{Carrier, Said, programs, read};
use super::recognise::flavour;
use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn said(dialect: &Dialect, line: &str) -> Vec<Meaning> {
    read(dialect, &words(line)).into_iter().map(|Said { meaning, .. }| meaning).collect()
}

fn sets(variable: &str, value: &str) -> Meaning {
    Meaning::Sets { variable: variable.to_owned(), value: value.to_owned() }
}

fn hosts(names: &[&str]) -> Meaning {
    Meaning::Hosts(names.iter().map(|&name| name.to_owned()).collect())
}

/// The variables of one host's job, a line each.
fn variables(dialect: &Dialect, intra_host: IntraHost) -> String {
    let request =
        Request { intra_host, several_hosts: false, core: "tcp", libfabric: None, providers: Path::new("/job/lib") };
    (dialect.variables)(&request).iter().map(|variable| format!("{}={}\n", variable.name, variable.value)).collect()
}

fn permits(dialect: &Dialect, name: &str, value: &str) -> bool {
    let request = Request {
        intra_host: IntraHost::Mpi,
        several_hosts: false,
        core: "tcp",
        libfabric: None,
        providers: Path::new("/job/lib"),
    };
    let variables = (dialect.variables)(&request);
    let variable = variables.iter().find(|variable| variable.name == name).expect("the dialect knows the variable");
    (variable.permits)(value)
}

#[test]
fn launchers_are_recognised_by_what_they_say() {
    let hydra = "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: x";
    let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\nCopyright";
    for (answer, expected) in [
        (hydra, Some((Flavour::Mpich, "MPICH 5.0.2"))),
        (&hydra.replace("5.0.2", "3.4.3"), None),
        (intel, Some((Flavour::Intel, intel.lines().next().unwrap()))),
        ("mpiexec (Open MPI) 5.0.11\n\nReport bugs to", Some((Flavour::OpenMpi { major: 5 }, "Open MPI 5.0.11"))),
        ("mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport", Some((Flavour::OpenMpi { major: 4 }, "Open MPI 4.1.4"))),
        ("mpirun (Open MPI) 3.1.6", None),
        ("prterun (PRRTE) 3.0.13", Some((Flavour::OpenMpi { major: 5 }, "Open MPI 3.0.13"))),
        ("slurm 22.05.8", Some((Flavour::Slurm, "slurm 22.05.8"))),
        ("slurm-wlm 22.05.8", Some((Flavour::Slurm, "slurm-wlm 22.05.8"))),
        ("slurm-simulator of ours", None),
        ("GNU bash, version 5.2", None),
        ("", None),
    ] {
        let expected = expected.map(|(flavour, version)| (flavour, version.to_owned()));
        assert_eq!(flavour(answer), expected, "{answer}");
    }
}

#[test]
fn options_are_read_up_to_the_program_of_each_part() {
    assert_eq!(
        said(&mpich::DIALECT, "-n 2 -genv FI_PROVIDER tcp --genv A=B -ppn 1 ./p -genv X Y : -env C D -n 1 q"),
        [sets("FI_PROVIDER", "tcp"), sets("A", "B"), sets("C", "D")]
    );
    assert_eq!(programs(&mpich::DIALECT, &words("-n 2 -ppn 1 ./p -n : -n 1 q")), [4, 9]);
    assert_eq!(said(&mpich::DIALECT, "-genvnone ./p"), [Meaning::Strips]);
    assert_eq!(said(&intel::DIALECT, "-s all -genvexcl FI_PROVIDER p"), [Meaning::Strips]);
    assert_eq!(
        said(
            &openmpi::DIALECT_5,
            "--allow-run-as-root --mca pml ob1 -np 2 -x FI_PROVIDER=tcp -x PATH --bind-to none p --mca btl tcp"
        ),
        [sets("OMPI_MCA_pml", "ob1"), sets("FI_PROVIDER", "tcp")]
    );
    assert_eq!(said(&slurm::DIALECT, "-n 2 --export=PATH p"), []);
    assert_eq!(said(&slurm::DIALECT, "--export=all,FI_PROVIDER=tcp p"), [sets("FI_PROVIDER", "tcp")]);
    assert_eq!(said(&slurm::DIALECT, "--multi-prog conf"), [Meaning::ProgramsByFile]);
    assert_eq!(said(&slurm::DIALECT, "--mu conf"), [Meaning::ProgramsByFile]);
    assert_eq!(said(&slurm::DIALECT, "-n 2 --mpi=pmix p"), []);
    let count = |count: &str| Meaning::HostCount(count.to_owned());
    assert_eq!(said(&slurm::DIALECT, "-N1 -wa -W 5 --wait=9 -c 2 p -N2"), [count("1"), hosts(&["a"])]);
    assert_eq!(said(&slurm::DIALECT, "--nodes=1-2 --comment x -w a,b p"), [count("1-2"), hosts(&["a", "b"])]);
    for elsewhere in ["--jobid=7 p", "-Mother p", "--het-group 1 p", "-F file p"] {
        assert_eq!(said(&slurm::DIALECT, elsewhere), [Meaning::Elsewhere], "{elsewhere}");
    }
    assert_eq!(programs(&slurm::DIALECT, &words("-l -n2 --mem-bind local --resv-ports -K ./p -n")), [6]);
}

#[test]
fn hosts_are_named_in_many_ways() {
    assert_eq!(said(&mpich::DIALECT, "-hosts h1:2,h2 p"), [hosts(&["h1", "h2"])]);
    assert_eq!(said(&openmpi::DIALECT_4, "-H u@h1:1,h2:2 p"), [hosts(&["h1", "h2"])]);
    assert_eq!(
        said(&intel::DIALECT, "-machinefile f -bootstrap ssh p"),
        [Meaning::HostFile("f".to_owned()), Meaning::Carrier(Carrier::Ssh)]
    );
    assert_eq!(command_line::host_of("fe80::1 slots=2"), "fe80::1");
    assert_eq!(command_line::host_of("  # nothing"), "");
}

#[test]
fn what_stands_in_for_ssh_is_known_with_its_place() {
    let program = |name: &str| Meaning::Carrier(Carrier::Program(name.to_owned()));
    let arguments = words("-n 1 -launcher rsh a : -launcher-exec /x/ssh -n 1 b");
    let read = read(&mpich::DIALECT, &arguments);
    let places: Vec<_> = read.iter().map(|said| (said.meaning.clone(), said.place.clone())).collect();
    assert_eq!(places, [(Meaning::Carrier(Carrier::Ssh), 2..4), (program("/x/ssh"), 6..8)]);
    assert_eq!(said(&mpich::DIALECT, "-launcher slurm p"), [Meaning::Carrier(Carrier::Foreign)]);
    assert_eq!(said(&openmpi::DIALECT_5, "--prtemca plm_ssh_agent /x/ssh p"), [program("/x/ssh")]);
    assert_eq!(said(&openmpi::DIALECT_4, "--mca plm slurm p"), [Meaning::Carrier(Carrier::Foreign)]);
}

#[test]
fn each_mpi_gets_what_it_needs() {
    assert_eq!(
        variables(&mpich::DIALECT, IntraHost::Mpi),
        "FI_PROVIDER=gambeson\nFI_PROVIDER_PATH=/job/lib\nMPIR_CVAR_CH4_NETMOD=ofi\nMPIR_CVAR_NOLOCAL=0\n"
    );
    assert!(variables(&mpich::DIALECT, IntraHost::Sealed).contains("MPIR_CVAR_NOLOCAL=1\n"));
    assert!(
        variables(&intel::DIALECT, IntraHost::Mpi).contains("I_MPI_FABRICS=shm:ofi\nI_MPI_OFI_PROVIDER=gambeson\n")
    );
    assert!(variables(&intel::DIALECT, IntraHost::Sealed).contains("I_MPI_FABRICS=ofi\n"));
    let four = variables(&openmpi::DIALECT_4, IntraHost::Mpi);
    assert!(four.contains("OMPI_MCA_pml=cm\nOMPI_MCA_mtl=ofi\nOMPI_MCA_mtl_ofi_provider_include=gambeson\n"));
    assert!(four.contains("OMPI_MCA_osc=rdma,sm,pt2pt\n"));
    assert!(variables(&openmpi::DIALECT_4, IntraHost::Sealed).contains("OMPI_MCA_osc=pt2pt\n"));
    assert!(variables(&openmpi::DIALECT_5, IntraHost::Mpi).contains("OMPI_MCA_btl=self,sm\nOMPI_MCA_osc=rdma,sm\n"));
    let all = variables(&slurm::DIALECT, IntraHost::Mpi);
    for name in ["MPIR_CVAR_CH4_NETMOD", "I_MPI_FABRICS", "OMPI_MCA_pml"] {
        assert!(all.contains(name), "{name}");
    }
    assert_eq!(all.lines().filter(|line| line.starts_with("FI_PROVIDER=")).count(), 1);
}

#[test]
fn a_layered_core_is_shown_with_its_parts() {
    for (version, core, expected) in [
        (None, "tcp", "gambeson"),
        (Some((1, 17)), "tcp", "gambeson,tcp,ofi_rxm"),
        (Some((1, 11)), "verbs;ofi_rxm", "gambeson,verbs,ofi_rxm"),
        (Some((1, 18)), "tcp", "gambeson"),
        (Some((2, 5)), "tcp", "gambeson"),
        (Some((2, 5)), "verbs;ofi_rxm", "gambeson,verbs,ofi_rxm"),
    ] {
        let libfabric = Libfabric { path: PathBuf::new(), version };
        let request = Request {
            intra_host: IntraHost::Mpi,
            several_hosts: false,
            core,
            libfabric: Some(&libfabric),
            providers: Path::new("/job/lib"),
        };
        for dialect in [&mpich::DIALECT, &openmpi::DIALECT_4, &intel::DIALECT] {
            assert_eq!((dialect.variables)(&request)[0].value, expected);
        }
    }
}

#[test]
fn a_choice_that_is_as_good_is_left_alone() {
    assert!(permits(&mpich::DIALECT, "MPIR_CVAR_NOLOCAL", "1"));
    assert!(!permits(&mpich::DIALECT, "MPIR_CVAR_CH4_NETMOD", "ucx"));
    assert!(permits(&intel::DIALECT, "I_MPI_FABRICS", "ofi"));
    assert!(!permits(&intel::DIALECT, "I_MPI_FABRICS", "shm:tcp"));
    assert!(permits(&openmpi::DIALECT_4, "OMPI_MCA_btl", "vader,self"));
    assert!(permits(&openmpi::DIALECT_5, "OMPI_MCA_btl", "self"));
    for btl in ["self,tcp", "^openib", ""] {
        assert!(!permits(&openmpi::DIALECT_5, "OMPI_MCA_btl", btl), "{btl}");
    }
}

#[test]
fn windows_are_refused_where_they_would_be_in_clear() {
    let request = |intra_host, several_hosts| Request {
        intra_host,
        several_hosts,
        core: "tcp",
        libfabric: None,
        providers: Path::new(""),
    };
    let five = openmpi::DIALECT_5.one_sided;
    assert!(five(&request(IntraHost::Mpi, false)).is_ok());
    assert!(five(&request(IntraHost::Sealed, false)).is_err());
    assert!(five(&request(IntraHost::Mpi, true)).is_err());
    let four = openmpi::DIALECT_4.one_sided;
    assert!(four(&request(IntraHost::Mpi, false)).is_ok());
    assert!(four(&request(IntraHost::Sealed, true)).is_err_and(|refused| refused.to == Programs::WithThreads));
}
