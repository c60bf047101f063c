//! The tokens of those who may change the cluster, one on each line of a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use subtle::ConstantTimeEq;

use crate::error::ServerError;
use crate::reload::ReloadedFiles;
use crate::security::secret_file::read_secret_file;

/// The shortest token.
const TOKEN_BYTES_MIN: usize = 16;
/// The most tokens of a file: one is enough, and another while it is changed.
const TOKENS_MAX: usize = 16;
/// The scheme of a token in a header.
const SCHEME: &str = "Bearer ";

/// The tokens of a file, which is read again when it changes.
pub(crate) struct AdminTokens(ReloadedFiles<PathBuf, Vec<String>>);

impl fmt::Debug for AdminTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminTokens").field("path", self.0.files()).finish_non_exhaustive()
    }
}

impl AdminTokens {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ServerError::InvalidOption`]: others may read it, or it has no token that can be used.
    pub(crate) fn open(path: &Path) -> Result<Self, ServerError> {
        let opened = ReloadedFiles::open(path.to_owned(), |path| read(path));
        let refused = |why| ServerError::InvalidOption(format!("--admin-token-file: {why}"));
        opened.map(Self).map_err(refused)
    }

    /// Reads the file again. While it cannot be used, no token is allowed: who removes the file
    /// revokes its tokens.
    ///
    /// # Errors
    /// The reason why no token is allowed.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        let changed = self.0.refresh(|_| Ok(())).inspect_err(|_| self.0.replace(Vec::new()))?;
        if changed {
            tracing::info!(file = %self.0.files().display(), "the admin tokens have changed");
        }
        Ok(())
    }

    /// Whether this value of `Authorization` has one of the tokens. The time that this takes says
    /// nothing of them but their lengths.
    pub(super) fn allow(&self, authorization: &HeaderValue) -> bool {
        let Some((scheme, given)) = authorization.as_bytes().split_at_checked(SCHEME.len()) else {
            return false;
        };
        let is_scheme = scheme.eq_ignore_ascii_case(SCHEME.as_bytes());
        let given = given.trim_ascii();
        let tokens = self.0.current();
        // All are compared, whichever is equal.
        let is_equal = |token: &&String| token.as_bytes().ct_eq(given).into();
        let equal = tokens.iter().filter(is_equal).count();
        is_scheme && equal > 0
    }

    /// Returns the value of `Authorization` with the first token.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let tokens = self.0.current();
        let mut value = HeaderValue::try_from(format!("{SCHEME}{}", tokens.first()?)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Reads the tokens of a file.
fn read(path: &Path) -> Result<Vec<String>, String> {
    let shown = path.display();
    let failed = |error| format!("cannot read {shown}: {error}");
    // Opening a FIFO would wait.
    match path.metadata() {
        Ok(found) if !found.is_file() => return Err(format!("{shown} is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("{shown} is not there"));
        }
        _ => {}
    }
    let text = read_secret_file(path).map_err(failed)?;
    let tokens: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_token = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
    match &*tokens {
        [] => Err(format!("{shown} has no token")),
        _ if tokens.len() > TOKENS_MAX => Err(format!("{shown} has more than {TOKENS_MAX} tokens")),
        _ if !tokens.iter().all(is_token) => {
            Err(format!("{shown}: a token is a line of letters, digits and signs of ASCII"))
        }
        _ if tokens.iter().any(|token| token.len() < TOKEN_BYTES_MIN) => Err(format!(
            "{shown}: a token has {TOKEN_BYTES_MIN} bytes or more, as `openssl rand -hex 32` makes it"
        )),
        _ => Ok(tokens.into_iter().map(ToOwned::to_owned).collect()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210+/=";

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn allows(tokens: &AdminTokens, authorization: &str) -> bool {
        tokens.allow(&HeaderValue::from_str(authorization).unwrap())
    }

    #[test]
    fn each_token_of_the_file_is_allowed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        write(&path, &format!("\n  {ONE}\r\n{TWO}\n\n"));
        let tokens = AdminTokens::open(&path).unwrap();
        for (authorization, is_allowed) in [
            (format!("Bearer {ONE}"), true),
            (format!("bearer  {TWO} "), true),
            (format!("Bearer {ONE}{TWO}"), false),
            (format!("Bearer {}", &ONE[1..]), false),
            (format!("Bearer {}0", &ONE[..15]), false),
            (format!("Basic {ONE}"), false),
            (ONE.to_owned(), false),
            ("Bearer ".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(allows(&tokens, &authorization), is_allowed, "{authorization}");
        }
        assert_eq!(tokens.authorization().unwrap(), format!("Bearer {ONE}"));
        assert!(!format!("{tokens:?}").contains(ONE));
    }

    /// Both are allowed while clients change from one to the other.
    #[test]
    fn a_token_is_changed_in_two_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        write(&path, ONE);
        let tokens = AdminTokens::open(&path).unwrap();
        let (one, two) = (format!("Bearer {ONE}"), format!("Bearer {TWO}"));
        for (text, allowed) in [
            (ONE.to_owned(), [true, false]),
            (format!("{TWO}\n{ONE}\n"), [true, true]),
            (format!("{TWO}\n"), [false, true]),
        ] {
            write(&path, &text);
            tokens.refresh().unwrap();
            assert_eq!([allows(&tokens, &one), allows(&tokens, &two)], allowed, "{text}");
        }
    }

    /// Tokens of a file that was removed to revoke them were allowed until the node's restart.
    #[test]
    fn tokens_of_a_file_that_cannot_be_used_are_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        write(&path, ONE);
        let tokens = AdminTokens::open(&path).unwrap();
        let one = format!("Bearer {ONE}");
        let emptied = || write(&path, "");
        let shortened = || write(&path, "short");
        let shared = || fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let removed = || fs::remove_file(&path).unwrap();
        let unusable: [&dyn Fn(); 4] = [&emptied, &shortened, &shared, &removed];
        for make_unusable in unusable {
            make_unusable();
            assert!(tokens.refresh().is_err());
            assert!(!allows(&tokens, &one) && tokens.authorization().is_none());
            write(&path, ONE);
            tokens.refresh().unwrap();
            assert!(allows(&tokens, &one));
        }
    }

    #[test]
    fn unusable_files_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let why = || AdminTokens::open(&path).unwrap_err().to_string();
        assert!(why().contains("is not there"), "{}", why());
        for (text, reason) in [
            ("\n \n", "has no token"),
            ("short", "16 bytes or more"),
            ("0123456789abcdef and more", "signs of ASCII"),
            (&format!("{ONE}\n").repeat(17), "more than 16 tokens"),
        ] {
            write(&path, text);
            assert!(why().contains(reason), "{}", why());
        }
        write(&path, ONE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(why().contains("chmod 600"), "{}", why());
    }
}
