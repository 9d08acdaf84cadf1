//! Errors as MPI has them: a class of the standard, a sentence of ours, and the file's error handler (MPI-4.1 section 9.3).

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::mpi::{Inside, Mpi};

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    /// An error class of the library's ABI.
    pub(crate) class: c_int,
    /// What happened, where, and what to do.
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(class: c_int, sentence: impl Into<String>) -> Self {
        Failure { class, sentence: sentence.into() }
    }

    /// Calls the error handler of `MPI_FILE_NULL`, which is that of files that could not be opened; the error code, if the
    /// handler returns.
    pub(crate) fn raise_without_file(&self, mpi: &Mpi) -> c_int {
        if mpi.abi.calls_file_null { self.raise(mpi, mpi.abi.file_null) } else { self.raise_by_stand_in(mpi) }
    }

    /// Calls that handler by a file that has it.
    fn raise_by_stand_in(&self, mpi: &Mpi) -> c_int {
        let (mut handler, mut file) = (0, 0);
        let (own, name, info) = (mpi.abi.comm_self, c"/dev/null".as_ptr(), mpi.abi.info_null);
        // SAFETY: handles go where there is room for them.
        unsafe {
            if (mpi.call.file_get_errhandler)(mpi.abi.file_null, &raw mut handler) != 0
                || handler == mpi.abi.errors_return
                || (mpi.call.file_open)(own, name, mpi.abi.mode.read_only, info, &raw mut file) != 0
            {
                return self.code(mpi);
            }
            (mpi.call.file_set_errhandler)(file, handler);
            (mpi.call.errhandler_free)(&raw mut handler);
        }
        let code = self.raise(mpi, file);
        // SAFETY: the file is ours.
        unsafe { (mpi.call.file_close)(&raw mut file) };
        code
    }

    /// Calls the error handler of a file; the error code, if the handler returns.
    pub(crate) fn raise(&self, mpi: &Mpi, file: usize) -> c_int {
        let code = self.code(mpi);
        // The program's handler may close files.
        // SAFETY: the handle is the library's own.
        Inside::outside(|| unsafe { (mpi.call.file_call_errhandler)(file, code) });
        code
    }

    /// An error code of this class whose string is the sentence.
    fn code(&self, mpi: &Mpi) -> c_int {
        static CODES: OnceLock<Mutex<HashMap<(c_int, String), c_int>>> = OnceLock::new();
        let mut codes = CODES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&code) = codes.get(&(self.class, self.sentence.clone())) {
            return code;
        }
        // Libraries have room for a few thousand codes, which belong to the program as well.
        if codes.len() >= CODES_MAX {
            return self.class;
        }
        let mut code = 0;
        let text = shorten(&self.sentence, mpi.abi.error_string_max - 1);
        // SAFETY: the code is ours, and the string is copied.
        let added = unsafe {
            (mpi.call.add_error_code)(self.class, &raw mut code) == 0
                && (mpi.call.add_error_string)(code, text.as_ptr()) == 0
        };
        if !added {
            return self.class;
        }
        codes.insert((self.class, self.sentence.clone()), code);
        code
    }
}

/// The sentence in as many bytes as there is room for, whole characters only. It begins with where it happened and ends
/// with what to do, so what there is no room for is left out of its middle.
fn shorten(sentence: &str, room: usize) -> CString {
    let mut text = sentence.replace('\0', "");
    if text.len() > room {
        let kept = room - OMISSION.len();
        let begin = text.floor_char_boundary(kept * 2 / 5);
        let end = text.ceil_char_boundary(text.len() - (kept - begin));
        text = [&text[..begin], OMISSION, &text[end..]].concat();
    }
    CString::new(text).expect("zeros are left out")
}

const OMISSION: &str = " ... ";
const CODES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_keeps_where_and_what_to_do() {
        let short = |sentence| shorten(sentence, 20).into_string().unwrap();
        assert_eq!(short("file a: do b\0"), "file a: do b");
        assert_eq!(short("a file: 10 of its blocks are gone; repair it"), "a file ... repair it");
        assert_eq!(short("äüöäüöäüöäüöäüöäüö"), "äüö ... öäüö");
    }
}
