//! `gambeson directory keygen|sign|check`: what a site says of its hosts, signed, and whether it holds.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use clap::{Args, Subcommand};
use gambeson_proto::directory::{
    Attach, Directory, DirectoryError, Expected, Host, LENGTH_MAX, compose, date, enclose, message, transport_name,
};
use gambeson_site::directory::{self, DIRECTORY, ED25519, Error, FOLDER, SITE_KEY};
use pki_types::PrivatePkcs8KeyDer;
use pki_types::pem::PemObject;
use serde_json::json;

use crate::failure::{Failure, STATUSES, Status};
use crate::pem::{self, Secret};

/// Signs and explains the site directory, by which links choose their transports
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Keygen(Keygen),
    Sign(Sign),
    Check(Check),
}

/// Makes a site's key: NAME.key, which signs, and NAME.pub, by which hosts know what the site signed
///
/// Keep NAME.key where few can read it; it is needed only to sign. Every host of the site has
/// NAME.pub as /etc/gambeson/site.pub. Both are PEM, so that a key of OpenSSL's does as well:
///
///   openssl genpkey -algorithm ed25519 -out site.key
///   openssl pkey -in site.key -pubout -out site.pub
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Keygen {
    /// How the two files are called, before .key and .pub
    #[arg(default_value = "site")]
    name: PathBuf,
}

/// Signs a site directory, in its file or into another one
///
/// The file says for each host what links with it go over, in the order to try, and how both
/// ends of a session with it may have proved who they are; and which networks need protection,
/// whatever the policy says:
///
///   [[host]]
///   name = "ocean1"                           as the host calls itself
///   addresses = ["10.1.0.1"]                  where it is; optional
///   transports = ["shm", "libfabric", "tcp"]
///   authentication = ["job", "pinned", "certificate"]
///   attach = { addresses = ["10.1.0.1:4000"], role = "model" }     a program that is attached
///                                             to, and who has to be there (or key = "..."); optional
///
///   [[network]]
///   subnet = "10.9.0.0/16"                    links with whoever is in it, or may be
///   protection = "privacy" | "integrity"
///
/// `sign` writes two lines in front, when it was issued and when it expires, and the signature
/// at its end. Sign it again before it expires, and whenever it has changed; lay it to every
/// host as /etc/gambeson/directory.toml. Who has taken one takes none that was issued earlier.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
struct Sign {
    /// The directory, signed before or not
    file: PathBuf,
    /// The secret key of the site
    #[arg(long, value_name = "FILE", default_value = "site.key")]
    key: PathBuf,
    /// For how many days it is valid
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
    /// Where to write what is signed, instead of in its place
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Says whether a site directory holds, and what it says
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Check {
    /// The directory
    #[arg(default_value_os_t = Path::new(FOLDER).join(DIRECTORY))]
    file: PathBuf,
    /// The public key of the site
    #[arg(long, value_name = "FILE", default_value_os_t = Path::new(FOLDER).join(SITE_KEY))]
    site_key: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        Action::Keygen(keygen) => keygen.execute()?,
        Action::Sign(sign) => sign.execute()?,
        Action::Check(check) => check.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with a directory, for scripts.
fn status(cause: &DirectoryError) -> Status {
    if matches!(cause, DirectoryError::Senseless(..)) { Status::Policy } else { Status::Refused }
}

impl Keygen {
    fn execute(&self) -> Result<(), Failure> {
        let none = |_| Failure::system("the kernel gives no random numbers, so no key can be made");
        let secret = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).map_err(none)?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(secret.as_ref()).expect("it was made this moment");
        let public = [&ED25519[..], key.public_key().as_ref()].concat();
        let [secret_path, public_path] = ["key", "pub"].map(|end| with_end(&self.name, end));
        let secret = pem::encode("PRIVATE KEY", secret.as_ref());
        pem::create(&secret_path, 0o600, secret.as_bytes(), KNOWN)?;
        let public = pem::encode("PUBLIC KEY", &public);
        if let Err(failure) = pem::create(&public_path, 0o644, public.as_bytes(), KNOWN) {
            let _ = fs::remove_file(&secret_path);
            return Err(failure);
        }
        println!("{} signs: keep it where few can read it", secret_path.display());
        println!("{} goes to every host of the site as {FOLDER}/{SITE_KEY}", public_path.display());
        Ok(())
    }
}

const KNOWN: &str = "hosts may know the site";

fn with_end(name: &Path, end: &str) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(".");
    path.push(end);
    path.into()
}

impl Sign {
    fn execute(&self) -> Result<(), Failure> {
        let key = secret_key(&self.key)?;
        let text = read_text(&self.file)?;
        let issued = directory::now();
        let composed = compose(&text, issued, issued + self.days * 86_400);
        let directory = Directory::parse(composed.as_bytes()).map_err(|cause| {
            let place = match &cause {
                // Counted in the file as it is, which may lack the two lines in front.
                DirectoryError::Senseless(Some(line), _) => {
                    let lines = |text: &str| text.lines().filter(|line| !line.starts_with("# signature = ")).count();
                    format!(":{}", (line + lines(&text)).saturating_sub(lines(&composed)).max(1))
                }
                _ => String::new(),
            };
            let what = if let DirectoryError::Senseless(_, what) = &cause { what.clone() } else { cause.to_string() };
            Failure::new(status(&cause), format!("{}{place}: {what}", self.file.display()))
        })?;
        let signature = key.sign(&message(composed.as_bytes()));
        let signed = enclose(&composed, signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes"));
        let output = self.output.as_deref().unwrap_or(&self.file);
        replace(output, signed.as_bytes())?;
        println!("{}: {}, until {}", output.display(), counts(&directory), date(directory.expires));
        Ok(())
    }
}

/// Puts a file in the place of another at once: nobody reads half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let beside = with_end(path, &format!("new-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside);
    let written = made.and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&beside, path));
    written.map_err(|cause| {
        let _ = fs::remove_file(&beside);
        Failure::system(format!("{} cannot be written ({cause}); name another place with --output", path.display()))
    })
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(2 * LENGTH_MAX as u64).read_to_string(&mut text));
    read.map_err(|cause| {
        let what = format!(
            "the directory {} cannot be read ({cause}); name the file that says what your hosts have",
            path.display()
        );
        Failure::unavailable(what)
    })?;
    Ok(text)
}

fn secret_key(path: &Path) -> Result<Ed25519KeyPair, Failure> {
    let parse = |bytes: &[u8]| PrivatePkcs8KeyDer::from_pem_slice(bytes).ok();
    let der = pem::read(path, &SECRET, parse, || no_key(path))?;
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).map_err(|_| no_key(path))
}

const SECRET: Secret = Secret {
    what: "the site's secret key",
    others: "who could sign with it",
    remedy: "name it with --key, or make one with `gambeson directory keygen`",
};

fn no_key(path: &Path) -> Failure {
    Failure::refused(format!(
        "{} is no Ed25519 private key in PEM; `gambeson directory keygen` makes one, with .key at its end",
        path.display()
    ))
}

impl Check {
    fn execute(&self) -> Result<(), Failure> {
        let failure = |error: Error| {
            let status = if let Error::Directory(_, cause) = &error { status(cause) } else { Status::Refused };
            Failure::new(status, error.to_string())
        };
        let key = directory::read_key(&self.site_key)
            .map_err(|error| Failure::refused(format!("{error}; --site-key names the one to check with")))?;
        let directory = directory::verify(&self.file, &key).map_err(failure)?;
        if self.json {
            self.print_json(&directory);
        } else {
            self.print_text(&directory);
        }
        Ok(())
    }

    fn print_text(&self, directory: &Directory) {
        println!("directory  {}, signed by the owner of {}", self.file.display(), self.site_key.display());
        println!("issued     {}", date(directory.issued));
        println!("expires    {}, {}", date(directory.expires), left(directory));
        let hosts: Vec<[String; 4]> = rows(directory);
        let widths: Vec<_> =
            (0..4).map(|column| hosts.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
        for [name, addresses, transports, authentication] in &hosts {
            let (first, second, third) = (widths[0], widths[1], widths[2]);
            println!("host       {name:first$}  {addresses:second$}  {transports:third$}  {authentication}");
        }
        for host in &directory.hosts {
            if let Some(attach) = &host.attach {
                let addresses: Vec<_> = attach.addresses.iter().map(ToString::to_string).collect();
                println!(
                    "attach     {} at {}, where {} is expected",
                    host.name,
                    addresses.join(", "),
                    expected(attach)
                );
            }
        }
        for network in &directory.networks {
            println!("network    {} has {} at least", network.subnet(), network.protection);
        }
    }

    fn print_json(&self, directory: &Directory) {
        let hosts = directory.hosts.iter().map(|host| {
            json!({
                "name": host.name,
                "addresses": host.addresses,
                "transports": host.transports.iter().map(|&transport| transport_name(transport)).collect::<Vec<_>>(),
                "authentication": host.authentication.iter().map(|way| way.name()).collect::<Vec<_>>(),
                "attach": host.attach.as_ref().map(|attach| match &attach.expected {
                    Expected::Role(role) => json!({ "addresses": attach.addresses, "role": role }),
                    Expected::Key(key) => json!({ "addresses": attach.addresses, "key": hexadecimal(key) }),
                }),
            })
        });
        let networks = directory
            .networks
            .iter()
            .map(|network| json!({"subnet": network.subnet(), "protection": network.protection.name()}));
        let report = json!({
            "file": self.file,
            "site_key": self.site_key,
            "issued": date(directory.issued),
            "expires": date(directory.expires),
            "hosts": hosts.collect::<Vec<_>>(),
            "networks": networks.collect::<Vec<_>>(),
        });
        println!("{report:#}");
    }
}

fn rows(directory: &Directory) -> Vec<[String; 4]> {
    let listed = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(", ") };
    let row = |host: &Host| {
        [
            host.name.clone(),
            listed(host.addresses.iter().map(ToString::to_string).collect()),
            listed(host.transports.iter().map(|&transport| transport_name(transport).to_owned()).collect()),
            listed(host.authentication.iter().map(|way| way.name().to_owned()).collect()),
        ]
    };
    directory.hosts.iter().map(row).collect()
}

/// `the role model`
fn expected(attach: &Attach) -> String {
    match &attach.expected {
        Expected::Role(role) => format!("the role {role}"),
        Expected::Key(key) => format!("the key {}", hexadecimal(key)),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `2 hosts and 1 network`
pub(crate) fn counts(directory: &Directory) -> String {
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{} and {}", counted(directory.hosts.len(), "host"), counted(directory.networks.len(), "network"))
}

/// How long it is valid yet: `in 29 days`
pub(crate) fn left(directory: &Directory) -> String {
    let seconds = directory.expires.saturating_sub(directory::now());
    match seconds {
        0..=172_800 => format!("in {} h", seconds.div_ceil(3600)),
        _ => format!("in {} days", seconds.div_ceil(86_400)),
    }
}
