//! `gambeson enroll --browser`: a key and a certificate for a person's browser, in the one form that browsers take.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use gambeson_keys::Passphrase;
use gambeson_launch::authority::{Browser, Kind, Member, browser};
use gambeson_proto::directory::date;
use serde_json::json;

use crate::commands::site::Place;
use crate::failure::Failure;
use crate::keys::new_passphrase;

/// What a guess of the passphrase costs: as many rounds as Windows still takes.
const ROUNDS: &str = "600000";

pub(super) struct Wish<'w> {
    pub(super) file: &'w Path,
    pub(super) passphrase_file: Option<&'w Path>,
    pub(super) replace: bool,
    pub(super) json: bool,
}

/// Has a key made and certified, and writes it for a browser; beside it what the browser has to trust.
pub(super) fn execute(place: &Place, wish: &Wish<'_>) -> Result<(), Failure> {
    let file = wish.file;
    if file.exists() && !wish.replace {
        return Err(Failure::refused(format!("{} is there already; --replace writes another one", file.display())));
    }
    let passphrase = new_passphrase(wish.passphrase_file, "--passphrase-file", &file.display().to_string())?;
    let member = Member::read(&place.of(Kind::User), Kind::User)?;
    let made = browser(&member)?;
    let sealed = pkcs12(&made, &passphrase)?;
    write(file, 0o600, &sealed)?;
    let pages = file.with_extension("pages.pem");
    if !made.pages.is_empty() {
        write(&pages, 0o644, made.pages.as_bytes())?;
    }
    let (name, until) = (made.subject.name(), date(made.until));
    let trusted = (!made.pages.is_empty()).then(|| pages.display().to_string());
    if wish.json {
        let said = json!({ "name": name, "roles": made.subject.roles, "until": until, "file": file, "pages": trusted });
        println!("{said}");
        return Ok(());
    }
    println!("certified  {name} in a browser until {until}: {}", file.display());
    match trusted {
        Some(pages) => println!(
            "next: import {} into the browser as your certificate, and {pages} as an authority for websites",
            file.display()
        ),
        None => {
            println!("this site has no pages yet: `gambeson site pages HOST` where its authority is, then this again")
        }
    }
    Ok(())
}

/// A key with its certificate as PKCS #12 (RFC 7292), which OpenSSL's program writes: key and passphrase come to it by pipes.
fn pkcs12(made: &Browser, passphrase: &Passphrase) -> Result<Vec<u8>, Failure> {
    let system = |cause: &dyn std::fmt::Display| Failure::system(format!("openssl was not given the key ({cause})"));
    // Without CLOEXEC, as openssl is to read it; nothing else is started from here.
    let (given, gives) = rustix::pipe::pipe().map_err(|cause| system(&cause))?;
    // A passphrase is shorter than a pipe is deep.
    io::copy(&mut passphrase.as_bytes(), &mut fs::File::from(gives)).map_err(|cause| system(&cause))?;
    let started = Command::new("openssl")
        .args(["pkcs12", "-export", "-name", made.subject.name(), "-iter", ROUNDS])
        .args(["-keypbe", "AES-256-CBC", "-certpbe", "AES-256-CBC", "-macalg", "sha256"])
        .args(["-passout", &format!("fd:{}", OwnedFd::as_raw_fd(&given))])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = started.map_err(|cause| {
        Failure::unavailable(format!(
            "openssl cannot be started ({cause}), which writes the file that browsers take; install it (Debian: openssl)"
        ))
    })?;
    // Who ends before it has read all says why on stderr.
    let _ = process.stdin.take().expect("it is piped").write_all(made.identity.as_bytes());
    let done = process.wait_with_output().map_err(|cause| system(&cause))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Failure::unavailable(format!("openssl has written no file for a browser: {}", said.trim_end())));
    }
    Ok(done.stdout)
}

fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|cause| {
        Failure::unavailable(format!("{} cannot be written ({cause}); name another file", path.display()))
    })
}
