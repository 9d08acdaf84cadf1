//! `gambeson bench`: measures what sealing costs.

mod farm;
mod files;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::{self, Picture, Wanted, coupled, keys, launch, link, proxy};
use crate::failure::{Failure, STATUSES};
use crate::probe::job::Starter;

use farm::Farm;
use files::Files;

/// Measures what sealing costs
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Messages(Messages),
    Files(Files),
    Link(Link),
    Coupled(Coupled),
    Proxy(Proxy),
    Launch(Launch),
    Keys(Keys),
    Farm(Farm),
    Sim(Sim),
}

/// How fast the simulator is: events and packets a second, on one core
#[derive(Args)]
struct Sim {
    /// Rounds, of which the best counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write the values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Links between two processes of this host: in clear, with integrity and sealed, beside bare carriers
#[derive(Args)]
#[command(after_long_help = WHAT_LINKS_ARE_COMPARED_WITH)]
struct Link {
    /// Lengths of requests and answers, separated by commas; K and M are powers of 1024
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIZES",
        value_parser = request,
        default_value = "8,64,256,1K,4K,16K,64K,256K,1M"
    )]
    lengths: Vec<usize>,
    /// Figures 6 and 7 of the paper again instead: time against length, two carriers, secure and unsecure
    #[arg(long, conflicts_with_all = ["lengths", "peers"])]
    paper: bool,
    /// Compare with ZeroMQ, nng and gRPC, too: where `make bench-peers` has put them (build/peers)
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Runs, each of all sides
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw pictures into this folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
}

const WHAT_LINKS_ARE_COMPARED_WITH: &str = "\
Two processes, both part of gambeson, over shared memory and then over TCP on the loopback interface. The
programs move the bytes themselves (Progress::Manual) and ask for them without sleeping, on both sides of
every comparison.

  bare       the same bytes over the same carrier by hand: no keys, no records, no requests
  in clear, integrity, sealed
             a link with that protection: a request, a handler, an answer

A run measures all sides in turn, and who is first changes from run to run; runs are short, so that some
have the machine to themselves. Given are the least time, what it is of the bare carrier's least time, and
the median of the runs' own ratios. Processor time is that of both processes; who asks without sleeping
uses all there is.

With --paper the command draws Figures 6 and 7 of \"A Secure Communications Infrastructure for High-Performance
Distributed Computing\" (1998) again, measures its two ways of sealing a message that is made of pieces, and says
which of its observations hold; Table 1 is gambeson bench coupled.
With --peers sealed links are measured in turn with ZeroMQ with CURVE, nng with TLS and gRPC with TLS.

  gambeson bench link --json links.json --pictures .
  gambeson bench link --paper --pictures .";

/// A coupled model of ocean and atmosphere over links: without security, for the coupler only, for all
#[derive(Args)]
#[command(after_long_help = WHAT_IS_COUPLED)]
struct Coupled {
    /// Days to simulate
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Processes of each component
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Cells of the ocean, eastward and northward; the atmosphere has half as many
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=1024))]
    cells: u32,
    /// Rounds, each of all settings
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const WHAT_IS_COUPLED: &str = "\
The ocean is one layer of water driven by wind, with its temperature, in a basin of 5000 km; the atmosphere
an energy-balance model above it. Each has its processes, which own slabs of the plane. Inside a component
they exchange the rows at their edges in every step, and every hour the components exchange the surface's
temperature for heat and wind stress. All of it are requests over links: between the components always over
TCP, inside them over TCP or shared memory.

  No secure        all links in clear
  Coupler secure   links between the components sealed
  All secure       all links sealed

These are Table 1 of \"A Secure Communications Infrastructure for High-Performance Distributed Computing\"
(1998), whose values stand beside. The program is the same in all settings. Heat must be conserved, and all
runs must end in the same state to the last bit, whatever their links; else the command fails.

  gambeson bench coupled --days 20 --json coupled.json";

/// A client and a service of TCP: directly, through a pair of `gambeson proxy`, and through one of stunnel's
#[derive(Args)]
#[command(after_long_help = WHAT_PROXIES_ARE_COMPARED_WITH)]
struct Proxy {
    /// Length of one stream, in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    mebibytes: u32,
    /// Rounds, each of all sides
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Leave stunnel out, for which Debian's package is stunnel4
    #[arg(long)]
    no_stunnel: bool,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Processes started by daemons: beside OpenSSH, and beside processes of one's own
#[derive(Args)]
#[command(after_long_help = WHAT_STARTS_ARE_COMPARED_WITH)]
struct Launch {
    /// Rounds, each of all sides
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Leave ssh out, for which Debian's packages are openssh-client and openssh-server
    #[arg(long)]
    no_ssh: bool,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A key service: keys given a second, to few clients and to a thousand, and what a job's start costs
#[derive(Args)]
#[command(after_long_help = format!("{WHAT_KEYS_ARE}\n\n{STATUSES}"))]
struct Keys {
    /// How many clients ask at a time, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,16,64,1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: Vec<u32>,
    /// How long they ask, in seconds
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=600))]
    time: u32,
    /// Rounds of everything
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Ranks of a job
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The mpiexec of a job whose start is measured, too, with its options
    #[arg(last = true, value_name = "MPIEXEC")]
    launcher: Vec<String>,
}

const WHAT_KEYS_ARE: &str = "\
A service with a site of its own is started for this, on the loopback interface of this host, so
clients and service share its processors. Its database is in the folder for temporary files
(TMPDIR): put that on a disk, since a key is given when its row of the log is there.

  gets/s        a question and its answer on a connection that there is (mutual TLS), each client
                one at a time
  connected     until all clients have connected, proved who they are and had their first key
  from nothing  a connection, both proofs and one answer, on a service that is idle
  a job         `gambeson run` with ranks that get the keys and end: with this service and with a
                folder in turn

  gambeson bench keys --json keys.json -- mpiexec";

const WHAT_STARTS_ARE_COMPARED_WITH: &str = "\
Daemons and sshd are started for this, on the loopback interface of this host, with keys made for this.
What is started is always `true`.

  connect+exec   a command that connects, starts it and waits: `gambeson exec`, and ssh
  CPU            processor time of both ends of that, with all that either has started
  64 at once     64 such commands, until the last of them has ended
  open           an order on a connection that is open; beside it the same program started directly
  1000           one order of 1000 processes at four daemons; they share this host's processors";

const WHAT_PROXIES_ARE_COMPARED_WITH: &str = "\
All processes are on this host and speak over the loopback interface, so who moves bytes shares the
processors with who seals them.

  down, up   one stream from the service, and to it until the service has it all
  CPU        processor time of both proxies for each gigabyte, both directions together
  64 B       a request and its answer on a connection that there is
  connect    a connection, a request on it, its answer and the end

stunnel is given TLS 1.3 and the certificates of both ends; it makes a TLS connection for each of TCP. A
round measures all sides in turn, and who is first changes.

  gambeson bench proxy --json proxy.json";

/// Latency, bandwidth and message rate between two processes, plain and sealed in alternation
#[derive(Args)]
#[command(after_long_help = WHAT_IS_COMPARED)]
struct Messages {
    /// Message sizes, separated by commas; K, M and G are powers of 1024
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIZES",
        value_parser = size,
        default_value = "0,8,64,256,1K,4K,16K,64K,256K,1M,4M,16M"
    )]
    sizes: Vec<usize>,
    /// Rounds, each plain and sealed
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Milliseconds for each quantity and size on each side of a round
    #[arg(long, default_value_t = 150, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    time: u32,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a picture into this file (.svg or .png)
    #[arg(long, value_name = "FILE")]
    plot: Option<Picture>,
    /// The libfabric provider that carries the bytes on both sides
    #[arg(long, default_value = "tcp", value_name = "NAME")]
    core: String,
    /// The policy of the sealed side
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// The launcher and its options, without a program: mpiexec -n 2
    #[arg(required = true, last = true, value_name = "MPIEXEC")]
    command: Vec<String>,
}

const WHAT_IS_COMPARED: &str = "\
Both sides run the same MPI program, which is part of gambeson, under the given mpiexec.

  plain   the MPI over the libfabric provider named by --core (MPICH: MPIR_CVAR_NOLOCAL=1; Intel MPI:
          I_MPI_FABRICS=ofi; Open MPI: pml cm, mtl ofi). Shared memory is off, so that processes of one
          host use the provider too.
  sealed  gambeson run --intra-host sealed --core the same: the same path, with every message sealed.

So the ratio is the cost of sealing, not that of a network against shared memory. A round is one job of
each side; which is first changes every round. Nothing is pinned to processors.

  latency    half the time of an MPI_Send and an MPI_Recv there and back
  bandwidth  64 MPI_Isend (fewer above 4 MiB: 256 MiB at a time) and a short answer
  rate       the same with 8 bytes

The value of a round is the median of its samples. The table has the best and the median of the rounds,
the ratio of the best values, and median and best of the rounds' own ratios.";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.what {
        What::Messages(arguments) => messages(arguments),
        What::Files(arguments) => arguments.execute(),
        What::Link(arguments) => links(arguments),
        What::Coupled(arguments) => coupled(arguments),
        What::Proxy(arguments) => proxies(arguments),
        What::Launch(arguments) => launches(arguments),
        What::Keys(arguments) => keys(arguments),
        What::Farm(arguments) => arguments.execute(),
        What::Sim(arguments) => simulator(arguments),
    }
}

fn coupled(arguments: &Coupled) -> Result<ExitCode, Failure> {
    let &Coupled { days, processes, cells, rounds, .. } = arguments;
    let [processes, cells, rounds] = [processes, cells, rounds].map(|number| number as usize);
    if !coupled::divides(cells, processes) {
        return Err(Failure::usage(format!(
            "{cells} cells cannot be divided among {processes} processes: give a multiple of {}",
            2 * processes
        )));
    }
    let (load, progress) = (load_before(), progress());
    let report = coupled::bench(&coupled::Wanted { days, processes, cells, rounds }, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    match &arguments.json {
        Some(path) => write_json(path, &report).map(|()| ExitCode::SUCCESS),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn proxies(arguments: &Proxy) -> Result<ExitCode, Failure> {
    let &Proxy { mebibytes, rounds, no_stunnel, .. } = arguments;
    let wanted = proxy::Wanted { bytes: u64::from(mebibytes) << 20, rounds: rounds as usize, stunnel: !no_stunnel };
    let (load, progress) = (load_before(), progress());
    let report = proxy::bench(&wanted, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
    Ok(ExitCode::SUCCESS)
}

fn launches(arguments: &Launch) -> Result<ExitCode, Failure> {
    let wanted = launch::Wanted { rounds: arguments.rounds as usize, ssh: !arguments.no_ssh };
    let (load, progress) = (load_before(), progress());
    let report = launch::bench(&wanted, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
    Ok(ExitCode::SUCCESS)
}

fn keys(arguments: &Keys) -> Result<ExitCode, Failure> {
    let (load, progress) = (load_before(), progress());
    let wanted = keys::Wanted {
        clients: arguments.clients.iter().map(|&clients| clients as usize).collect(),
        time: Duration::from_secs(arguments.time.into()),
        rounds: arguments.rounds as usize,
        launcher: arguments.launcher.clone(),
        ranks: arguments.ranks as usize,
    };
    let report = keys::bench(&wanted, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
    Ok(ExitCode::SUCCESS)
}

fn links(arguments: &Link) -> Result<ExitCode, Failure> {
    let Link { lengths, runs, peers, json, pictures, .. } = arguments;
    let runs = *runs as usize;
    let (load, progress) = (load_before(), progress());
    if arguments.paper {
        let report = link::paper::bench(runs, load, &progress);
        progress.finish_and_clear();
        let report = report?;
        print!("{}", report.text());
        json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
        pictures.as_ref().map_or(Ok(()), |dir| report.draw(dir))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = link::bench(&link::Wanted { lengths: lengths.clone(), runs, peers: peers.clone() }, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    json.as_ref().map_or(Ok(()), |path| write_json(path, &report))?;
    pictures.as_ref().map_or(Ok(()), |dir| report.draw(dir))?;
    Ok(ExitCode::SUCCESS)
}

/// The load average before a measurement, and a word about it.
fn load_before() -> [f64; 3] {
    let load = load_average();
    if load[0] > BUSY {
        eprintln!(
            "gambeson: this machine is busy (load average {:.2} over the last minute): the values will scatter",
            load[0]
        );
    }
    load
}

fn progress() -> ProgressBar {
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{prefix:14} [{bar:30}] {pos}/{len} {elapsed}");
    progress.with_style(style.expect("the template is well formed"))
}

fn simulator(arguments: &Sim) -> Result<ExitCode, Failure> {
    println!("{:28}{:>8}{:>14}{:>14}", "", "seconds", "M events/s", "M packets/s");
    let mut speeds = Vec::new();
    let measured = gambeson_sim::bench::measure(arguments.rounds, |speed| {
        let each = |count: u64| count as f64 / speed.seconds / 1e6;
        let (events, packets) = (each(speed.events), each(speed.packets));
        println!("{:28}{:>8.2}{events:>14.2}{packets:>14.3}", speed.name, speed.seconds);
        speeds.push(speed.clone());
    });
    measured.map_err(|error| Failure::system(error.to_string()))?;
    match &arguments.json {
        Some(path) => write_json(path, &speeds).map(|()| ExitCode::SUCCESS),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).expect("a report is plain data");
    std::fs::write(path, json + "\n")
        .map_err(|error| Failure::system(format!("{} cannot be written: {error}", path.display())))
}

fn messages(arguments: &Messages) -> Result<ExitCode, Failure> {
    let starter = Starter::new(&arguments.command, &arguments.core, arguments.policy.as_deref())?;
    let wanted = Wanted {
        sizes: arguments.sizes.clone(),
        rounds: arguments.rounds as usize,
        time: Duration::from_millis(arguments.time.into()),
        core: arguments.core.clone(),
    };
    let (load, progress) = (load_before(), progress());
    let report = bench::bench(&starter, &wanted, load, &progress);
    progress.finish_and_clear();
    let report = report?;
    print!("{}", report.text());
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    if let Some(picture) = &arguments.plot {
        bench::draw(&report, picture).map_err(Failure::system)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Above this load average a measurement competes with something else.
const BUSY: f64 = 0.5;
/// No message is longer than an MPI count of bytes can say.
const SIZE_MAX: usize = 1 << 30;

/// Of a request: a bare ping-pong has at least a byte.
fn request(text: &str) -> Result<usize, String> {
    match size(text)? {
        length @ 1..=REQUEST_MAX => Ok(length),
        _ => Err(format!("{text} is no length of a request here; give 1 to 16M")),
    }
}

const REQUEST_MAX: usize = 16 << 20;

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().find(|(_, letter)| !letter.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, ""),
    };
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("{text} is no size; write 64, 4K or 1M")),
    };
    let number: usize = digits.parse().map_err(|_| format!("{text} is no size; write 64, 4K or 1M"))?;
    let size = number.checked_mul(1 << shift).filter(|&size| size <= SIZE_MAX);
    size.ok_or_else(|| format!("{text} is too long; 1G is the most"))
}

/// Load averages of one, five and fifteen minutes; zeros where they are not known.
fn load_average() -> [f64; 3] {
    let info = rustix::system::sysinfo();
    info.loads.map(|load| load as f64 / f64::from(1u32 << 16))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(
            ["0", "8", "1K", "64k", "4MiB", "1G", "16 "].map(|text| size(text).ok()),
            [Some(0), Some(8), Some(1 << 10), Some(64 << 10), Some(4 << 20), Some(1 << 30), None,]
        );
        assert!(size("2G").unwrap_err().contains("too long"));
        assert!(size("K").is_err());
    }
}
