//! The file with the token for changes of a cluster.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use esker_client::NodeCaller;
use esker_server::read_secret_file;

use crate::exit::{Failure, Outcome};

/// The token of a command that changes a cluster.
#[derive(Debug, Args)]
pub struct TokenFile {
    /// A file with a token of the nodes' --admin-token-file, mode 0600, or 0640 if it is of root
    /// and another user reads it; its first line counts
    #[arg(long = "token-file", value_name = "FILE", env = "ESKER_TOKEN_FILE")]
    file: Option<PathBuf>,
}

impl TokenFile {
    /// Returns the caller, which sends the token, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read, others may read it, or its first line is no token.
    pub fn apply(&self, caller: NodeCaller) -> Outcome<NodeCaller> {
        let Some(path) = &self.file else { return Ok(caller) };
        let token = read_token(path).map_err(|why| unusable(path, why))?;
        caller.token(&token).map_err(|error| unusable(path, error))
    }
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--token-file {} (ESKER_TOKEN_FILE): {why}", path.display()))
}

/// Reads the first line that is not empty.
fn read_token(path: &Path) -> io::Result<String> {
    let text = read_secret_file(path)?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next().map(ToOwned::to_owned).ok_or_else(|| io::Error::other("it is empty"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_the_first_line_of_a_file_that_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let apply = || {
            let caller = NodeCaller::new(["127.0.0.1:1"], None).unwrap();
            let applied = TokenFile { file: Some(path.clone()) }.apply(caller);
            applied.map(drop).map_err(|failure| failure.to_string())
        };
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        for text in ["secret", "secret\n", "\n \t secret \r\nolder\n"] {
            write(text, 0o600);
            assert_eq!((read_token(&path).unwrap(), apply()), ("secret".into(), Ok(())));
        }
        for mode in [0o640, 0o604, 0o644, 0o620] {
            write("secret", mode);
            let why = apply().unwrap_err();
            assert!(why.contains("chmod 600") && why.contains("ESKER_TOKEN_FILE"), "{why}");
        }
        for (text, words) in [
            ("", "it is empty"),
            (" \n\n", "it is empty"),
            ("two words", "no space"),
            (&"x".repeat(70_000), "64 KiB"),
        ] {
            write(text, 0o600);
            let why = apply().unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        fs::remove_file(&path).unwrap();
        assert!(apply().unwrap_err().contains("No such file"));
    }
}
