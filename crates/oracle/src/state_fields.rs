//! Reading the fields of a state.

use std::io::{self, Read};

/// The error of bytes that are no state.
pub(crate) fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no state of an oracle: {why}"))
}

/// Reads a field of `N` bytes.
pub(crate) fn read<const N: usize>(state: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    state.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends before its last field"),
        _ => error,
    })?;
    Ok(bytes)
}
