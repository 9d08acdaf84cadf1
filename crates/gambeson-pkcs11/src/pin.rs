//! Where PINs come from: a file that nobody else may read, or whoever sits at the terminal.

use std::path::Path;
use std::sync::OnceLock;

use gambeson_site::job::read_secret;
use zeroize::Zeroizing;

use crate::{Error, Uri};

/// Asks a person for what nobody is to see; nothing: there is nobody to ask.
type Ask = fn(&str) -> Option<Zeroizing<Vec<u8>>>;

static ASK: OnceLock<Ask> = OnceLock::new();

/// Has PINs without a file asked for so. A program that does not call this asks nobody.
pub fn ask_with(ask: Ask) {
    // Who was first stays; both ask the same person.
    let _ = ASK.set(ask);
}

/// The PIN of a token. `asking`: a person may be waited for.
pub(crate) fn pin_of(uri: &Uri, asking: bool) -> Result<Zeroizing<Vec<u8>>, Error> {
    if let Some(file) = &uri.pin {
        return from_file(file, uri);
    }
    let ask = ASK.get().filter(|_| asking);
    ask.and_then(|ask| ask(&format!("PIN of the token {}: ", uri.token()))).ok_or_else(|| {
        Error::Refused(format!(
            "nothing tells the PIN of the token {}; name a file with it in the URI, behind &pin-source=file:, or start this \
             again where somebody can be asked",
            uri.token()
        ))
    })
}

fn from_file(file: &Path, uri: &Uri) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut pin = read_secret(file).map_err(|why| {
        Error::Refused(format!(
            "the file {} with the PIN of the token {} cannot be used: {why}; it has to be a file of the same user that \
             nobody else may read (chmod 600)",
            file.display(),
            uri.token()
        ))
    })?;
    let length = pin.trim_ascii_end().len();
    pin.truncate(length);
    Ok(pin)
}
