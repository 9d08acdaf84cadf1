//! Files of results, a line for each, that outlive whoever writes them.

use std::fs::File;
use std::io::{self, Read, Write};

/// Reads such a file, open for reading and appending, from its beginning. A last line that was torn when its writer was
/// killed is ended, so that the next one begins a line; as it is no JSON, it is nobody's result.
///
/// # Errors
/// What the system says.
pub fn take_up(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.last().is_some_and(|&last| last != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
