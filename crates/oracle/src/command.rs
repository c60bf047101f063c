//! The form that all commands of the replicated state have.

use std::io;

use esker_raft::Command;

/// The first byte of a command.
pub(crate) const COMMAND_VERSION: u8 = 1;

/// The error of a command that a later build made, or that is damaged.
pub(crate) fn unknown_command(command: &Command) -> io::Error {
    let start: Vec<_> = command.0.iter().take(2).copied().collect();
    let length = command.0.len();
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "a command of {length} bytes that begins with {start:?} is not known to this build; \
             start this node with the build of the leader"
        ),
    )
}

/// Decodes numbers, big-endian. `None` unless there are as many bytes.
pub(crate) fn read_u64s<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    if bytes.len() != 8 * N {
        return None;
    }
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_be_bytes(*bytes.first_chunk()?);
    }
    Some(numbers)
}
