//! Seeds for tests: read from the environment, and printed when a test fails.

/// Returns the seed in the environment variable `variable`, decimal or `0x` hexadecimal, or
/// `default` when it is not set.
///
/// # Panics
/// When the variable is not a number: a mistyped seed must not silently test another one.
#[allow(clippy::panic)]
pub fn seed_from_env(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else {
        return default;
    };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(seed) => seed,
        Err(error) => panic!("{variable}={text:?} is not a seed: {error}"),
    }
}

/// Prints the command that repeats a failing test. Keep it alive through the test.
///
/// ```
/// use esker_disk::sim::{Replay, SimDisk, seed_from_env};
///
/// let seed = seed_from_env("ESKER_SEED", 1);
/// let _replay = Replay::new("synced_bytes_stay", seed);
/// let disk = SimDisk::new(seed);
/// ```
#[derive(Debug)]
pub struct Replay {
    test: String,
    seed: u64,
}

impl Replay {
    /// Watches the test of this name, which takes its seed from `ESKER_SEED`.
    pub fn new(test: &str, seed: u64) -> Self {
        Self { test: test.to_owned(), seed }
    }

    /// Returns the command that repeats the test with the same seed.
    pub fn command(&self) -> String {
        let package = std::env::var("CARGO_PKG_NAME");
        let package = package.as_deref().unwrap_or(env!("CARGO_PKG_NAME"));
        format!("ESKER_SEED={} cargo test -p {package} {}", self.seed, self.test)
    }
}

impl Drop for Replay {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}; again with: {}", self.seed, self.command());
        }
    }
}
