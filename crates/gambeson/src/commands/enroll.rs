//! `gambeson enroll`: a host or a person of a site, over ssh or by a token.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gambeson_launch::authority::{Certified, Kind, Newcomer, Offer, Request, Subject, Token, join};
use gambeson_launch::identities::{Mechanism, ask};
use gambeson_pkcs11::{Made, Uri};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::json;
use zeroize::Zeroizing;

use crate::commands::agent::quoted;
use crate::commands::browser::{self, Wish};
use crate::commands::site::Place;
use crate::failure::{Failure, STATUSES, Status};
use crate::machine;
use crate::plan::{ssh_program, words};

/// Takes a host into this site, or a person on it
///
///   gambeson enroll h2                      over your ssh: as root there, for all its users
///   gambeson enroll --user ada h2           Ada's identity there, in the account that ssh reaches
///
/// The key is made there and stays there. Over ssh the same Gambeson has to be installed there under
/// the same path. Without ssh:
///
///   gambeson enroll --token h2              here: prints a token, which is good once, and waits
///   gambeson enroll --join TOKEN            there; or --join - with the token on stdin, as others
///                                           of that host see what is on command lines
///
/// Where the site takes what people have anyway, who works on one of its hosts needs no administrator:
///
///   gambeson enroll --munge                 by the MUNGE of these hosts; or --kerberos, by your ticket
///
/// With --pkcs11 the key is in a TPM or another token there, which it never leaves: the one that the
/// PKCS #11 URI (RFC 7512) names, made if there is none:
///
///   pkcs11:token=LABEL;object=NAME?module-path=/usr/lib/...so&pin-source=file:/etc/gambeson/pin
///
/// A browser is another place to be known in, for the pages of hosts (`gambeson site pages`): who has an identity
/// here has a key made for his browser, certified as himself. Nothing renews it: say the same again.
///
///   gambeson enroll --browser ada.p12       asks for a passphrase, by which the browser takes the file
///
/// The host has to call itself HOST, or one of --alias. Certificates renew themselves after that.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Arguments {
    /// The host, as ssh knows it: [USER@]HOST
    #[arg(required_unless_present_any = ["join", "answer", "munge", "kerberos", "browser"], conflicts_with_all = ["join", "answer"])]
    host: Option<String>,
    /// A person, who gets an identity there; without it, the host does
    #[arg(long, value_name = "NAME", conflicts_with_all = ["aliases", "join"])]
    user: Option<String>,
    /// Another name of the host; once for each
    #[arg(long = "alias", value_name = "NAME")]
    aliases: Vec<String>,
    /// Your ssh with its options, if it is a special one; without it GAMBESON_SSH says, or it is ssh
    #[arg(long, value_name = "COMMAND", conflicts_with = "token")]
    ssh: Option<String>,
    /// Print a token for --join instead, and wait for it
    #[arg(long)]
    token: bool,
    /// Where to wait for it; without it, on a free port of all addresses
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:0", requires = "token")]
    listen: SocketAddr,
    /// How long the token is good
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0, requires = "token")]
    minutes: f64,
    /// Join a site by its token, or by that on stdin (-)
    #[arg(long, value_name = "TOKEN")]
    join: Option<String>,
    /// With --join: the token is for a person
    #[arg(long, requires = "join")]
    person: bool,
    /// Have yourself certified for some hours as the account that runs this, by MUNGE
    #[arg(long, conflicts_with_all = ["host", "user", "aliases", "ssh", "token", "join", "answer"])]
    munge: bool,
    /// The same by your Kerberos ticket
    #[arg(long, conflicts_with_all = ["munge", "host", "user", "aliases", "ssh", "token", "join", "answer"])]
    kerberos: bool,
    /// A key and certificate for your browser, as PKCS #12 into this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "user", "aliases", "ssh", "token", "join", "answer", "munge", "kerberos", "pkcs11"])]
    browser: Option<PathBuf>,
    /// With --browser: a file with the passphrase, mode 0600, instead of asking for it; - reads a line of stdin
    #[arg(long, value_name = "FILE", requires = "browser")]
    passphrase_file: Option<PathBuf>,
    /// The key, in a token of the new host
    #[arg(long, value_name = "URI", conflicts_with = "token")]
    pkcs11: Option<Uri>,
    /// Put the new identity in the place of one that is there
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The other end of ssh
    #[arg(long, hide = true, value_name = "KIND")]
    answer: Option<String>,
}

/// What the two ends of ssh say before their lines, as login scripts may talk first.
const REQUEST: &str = "gambeson-request ";
const INSTALLED: &str = "gambeson-installed ";
const LINES_MAX: usize = 1000;
const LINE_MAX: u64 = 1 << 20;

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    machine::close_to_others()?;
    if let Some(kind) = &arguments.answer {
        arguments.answer(if kind == "user" { Kind::User } else { Kind::Host })?;
    } else if let Some(file) = &arguments.browser {
        let (passphrase_file, replace) = (arguments.passphrase_file.as_deref(), arguments.replace);
        browser::execute(&arguments.place, &Wish { file, passphrase_file, replace, json: arguments.json })?;
    } else if let Some(token) = &arguments.join {
        arguments.join(token)?;
    } else if let Some(mechanism) = arguments.mechanism() {
        arguments.ask(mechanism)?;
    } else {
        let host = arguments.host.as_deref().expect("clap requires a host");
        let subject = arguments.subject(host)?;
        match arguments.token {
            true => arguments.offer(subject)?,
            false => arguments.over_ssh(host, &subject)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// Whom the administrator says that it is.
    fn subject(&self, host: &str) -> Result<Subject, Failure> {
        if let Some(user) = &self.user {
            return Ok(Subject::user(user)?);
        }
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let named = host.parse::<IpAddr>().is_err().then_some(host);
        Ok(Subject::host(named.into_iter().chain(self.aliases.iter().map(String::as_str)))?)
    }

    fn mechanism(&self) -> Option<Mechanism> {
        self.munge.then_some(Mechanism::Munge).or_else(|| self.kerberos.then_some(Mechanism::Kerberos))
    }

    fn ask(&self, mechanism: Mechanism) -> Result<(), Failure> {
        let newcomer = self.newcomer(Kind::User)?;
        let certified = ask(&newcomer, mechanism)?;
        let path = newcomer.install(&certified)?;
        self.report(&certified, &path.display().to_string());
        Ok(())
    }

    fn over_ssh(&self, host: &str, subject: &Subject) -> Result<(), Failure> {
        let authority = self.place.authority()?;
        let mut there = There::start(self, host)?;
        let request = there.line(REQUEST)?;
        let certified = authority.certify(&Request::decode(request.as_bytes())?, subject)?;
        there.send(&certified)?;
        let path = there.line(INSTALLED)?;
        self.report(&certified, &format!("{host}:{path}"));
        Ok(())
    }

    /// Prints a token, and waits for who has it.
    fn offer(&self, subject: Subject) -> Result<(), Failure> {
        let patience = Duration::try_from_secs_f64(self.minutes * 60.0);
        let patience = patience.map_err(|_| Failure::usage("--minutes: give a number above 0"))?;
        let authority = Arc::new(self.place.authority()?);
        let offer = Offer::new(authority, subject, self.listen, &machine::host_name())?;
        let token = offer.token().encode();
        if self.json {
            println!("{}", json!({ "token": *token, "until": date(now() + patience.as_secs()) }));
        } else {
            println!("{}", *token);
        }
        std::io::stdout().flush().map_err(|cause| Failure::system(format!("the token cannot be said ({cause})")))?;
        if !self.json {
            let person = if self.user.is_some() { " --person" } else { "" };
            eprintln!(
                "gambeson: on the new host, `gambeson enroll{person} --join -` takes this token on stdin, once, until {}",
                date(now() + patience.as_secs())
            );
        }
        let certified = offer.wait(patience)?;
        self.report(&certified, "there");
        Ok(())
    }

    fn join(&self, token: &str) -> Result<(), Failure> {
        let mut stdin = Zeroizing::new(String::new());
        if token == "-" {
            let read = std::io::stdin().lock().take(LINE_MAX).read_line(&mut stdin);
            read.map_err(|cause| Failure::usage(format!("stdin gives no token ({cause})")))?;
        }
        let token = Token::parse(if token == "-" { &stdin } else { token })?;
        let kind = if self.person { Kind::User } else { Kind::Host };
        let newcomer = self.newcomer(kind)?;
        let certified = join(&token, &newcomer)?;
        if certified.subject.is_host() != (kind == Kind::Host) {
            let (is, say) = if self.person { ("a host", "leave --person out") } else { ("a person", "say --person") };
            return Err(Failure::refused(format!(
                "the token was for {is}, and is used up now; ask for another one, and {say}"
            )));
        }
        let path = newcomer.install(&certified)?;
        self.report(&certified, &path.display().to_string());
        Ok(())
    }

    fn newcomer(&self, kind: Kind) -> Result<Newcomer, Failure> {
        let newcomer = Newcomer::new(&self.place.of(kind), kind, self.replace, self.pkcs11.as_ref())?;
        if let (Some(uri), Made::Before) = (&self.pkcs11, newcomer.made()) {
            eprintln!("gambeson: {} was there before, and is taken", uri.name());
        }
        Ok(newcomer)
    }

    /// What ssh has started on the new host.
    fn answer(&self, kind: Kind) -> Result<(), Failure> {
        let newcomer = self.newcomer(kind)?;
        println!("{REQUEST}{}", newcomer.request()?.encode());
        let _ = std::io::stdout().flush();
        let mut answer = String::new();
        let read = std::io::stdin().lock().take(LINE_MAX).read_line(&mut answer);
        if !read.is_ok_and(|read| read > 0) {
            return Err(Failure::refused("the authority has sent no certificate; nothing was changed here"));
        }
        let path = newcomer.install(&Certified::decode(answer.trim_end().as_bytes())?)?;
        println!("{INSTALLED}{}", path.display());
        Ok(())
    }

    fn report(&self, certified: &Certified, place: &str) {
        let (name, until) = (certified.subject.name(), date(certified.until));
        if self.json {
            let subject = &certified.subject;
            println!(
                "{}",
                json!({ "name": name, "names": subject.names, "roles": subject.roles, "until": until, "file": place })
            );
        } else {
            println!("certified  {name} until {until}: {place}");
        }
    }
}

/// The end of ssh on the new host.
struct There {
    host: String,
    process: Child,
    said: BufReader<ChildStdout>,
}

impl There {
    fn start(arguments: &Arguments, host: &str) -> Result<Self, Failure> {
        let program = env::current_exe()
            .map_err(|cause| Failure::system(format!("this program's own path is not to be had ({cause})")))?;
        let kind = if arguments.user.is_some() { "user" } else { "host" };
        let mut command = format!("exec {} enroll --answer {kind}", quoted(program.as_os_str()));
        if arguments.replace {
            command.push_str(" --replace");
        }
        if let Some(uri) = &arguments.pkcs11 {
            command.push_str(&format!(" --pkcs11 {}", quoted(uri.to_string().as_ref())));
        }
        if let Some(folder) = arguments.place.given() {
            command.push_str(&format!(" --folder {}", quoted(folder.as_os_str())));
        }
        let ssh = arguments.ssh.as_deref().map(words).filter(|ssh| !ssh.is_empty()).unwrap_or_else(ssh_program);
        let mut started = Command::new(&ssh[0]);
        started.args(&ssh[1..]).arg(host).arg(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = started.spawn().map_err(|cause| {
            Failure::unavailable(format!(
                "{} cannot be started ({cause}); install ssh, name yours with --ssh, or enroll by --token",
                ssh.join(" ")
            ))
        })?;
        let said = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Ok(There { host: host.into(), process, said })
    }

    /// What it says behind a word.
    fn line(&mut self, word: &str) -> Result<String, Failure> {
        for _ in 0..LINES_MAX {
            let mut line = String::new();
            match self.said.by_ref().take(LINE_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return Ok(rest.to_owned());
            }
        }
        drop(self.process.stdin.take());
        // Its own sentence is on stderr.
        match self.process.wait().ok().and_then(|status| status.code()) {
            Some(status @ (64..=78)) => Err(Failure::new(
                Status::of_number(status as u8),
                format!("{} was not enrolled: Gambeson says there why, above", self.host),
            )),
            _ => Err(Failure::unavailable(format!(
                "{} does not answer as Gambeson does; install the same one there under the same path, and see that `ssh {} \
                 true` works; or enroll by --token",
                self.host, self.host
            ))),
        }
    }

    fn send(&mut self, certified: &Certified) -> Result<(), Failure> {
        let stdin = self.process.stdin.as_mut().expect("stdin is piped");
        // Who is gone shows by the silence that follows.
        let _ = writeln!(stdin, "{}", certified.encode()).and_then(|()| stdin.flush());
        Ok(())
    }
}

impl Drop for There {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
