//! `gambeson key recipient`: a public key that others seal labels to.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use data_encoding::HEXLOWER;
use gambeson_keys::recipient;
use gambeson_launch::authority::user_folder;
use gambeson_proto::secret::Secret32;
use gambeson_site::job::read_secret;
use zeroize::Zeroizing;

use crate::failure::{Failure, STATUSES};

/// Prints the public key to which others may wrap labels for you
///
/// The first call makes the key pair (X25519); its private key stays in a file that nobody else may read. Send the public
/// key so that nobody can put his own in its place, as by reading it out: `gambeson key export-wrapped --to KEY` wraps labels
/// to it, and `gambeson key import` opens them with your private key.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Recipient {
    /// The private key, instead of ~/.config/gambeson/recipient.key
    #[arg(long, value_name = "FILE")]
    recipient_key: Option<PathBuf>,
}

impl Recipient {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let path = place(self.recipient_key.as_deref());
        if !path.exists() {
            let (public, private) = recipient::generate().map_err(Failure::system)?;
            write(&path, &public, &private)?;
            eprintln!("gambeson: made {}; back it up as you do your keys", path.display());
        }
        println!("{}", HEXLOWER.encode(&read(&path)?.0));
        Ok(())
    }
}

/// Where the private key is.
pub(super) fn place(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| user_folder().join("recipient.key"), Path::to_owned)
}

/// The public key, and the private one.
pub(super) fn read(path: &Path) -> Result<([u8; 32], Secret32), Failure> {
    let none = |why: &str| {
        Failure::refused(format!(
            "the recipient's key {} cannot be used: {why}; it has to be a file of yours that nobody else may read, as \
             `gambeson key recipient` makes it",
            path.display()
        ))
    };
    let text = read_secret(path).map_err(|why| none(&why))?;
    let text = str::from_utf8(&text).map_err(|_| none("it is no text"))?;
    let mut keys = [MADE, PRIVATE].iter().map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        HEXLOWER.decode(line.trim().as_bytes()).ok().map(Zeroizing::new)
    });
    let (public, private) = (keys.next().flatten(), keys.next().flatten());
    let public = public.and_then(|key| key.as_slice().try_into().ok()).ok_or_else(|| none("it has no public key"))?;
    let private = private.filter(|key| key.len() == 32).ok_or_else(|| none("it has no private key"))?;
    Ok((public, Secret32::filled(|key| key.copy_from_slice(&private))))
}

/// A public key, as it is printed.
pub(super) fn public(text: &str) -> Result<[u8; 32], String> {
    let key = HEXLOWER.decode(text.to_ascii_lowercase().as_bytes()).ok().and_then(|key| key.try_into().ok());
    key.ok_or_else(|| "a recipient's key has 64 hexadecimal digits, as `gambeson key recipient` prints it".to_owned())
}

fn write(path: &Path, public: &[u8; 32], private: &Secret32) -> Result<(), Failure> {
    let mut text = Zeroizing::new(String::with_capacity(256));
    text.push_str(&format!("{MADE}{}\n{PRIVATE}", HEXLOWER.encode(public)));
    text.push_str(&Zeroizing::new(HEXLOWER.encode(private.as_bytes())));
    text.push('\n');
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all())
    });
    made.map_err(|error| Failure::unavailable(format!("{} cannot be written ({error})", path.display())))
}

const MADE: &str = "public key ";
const PRIVATE: &str = "private key ";
