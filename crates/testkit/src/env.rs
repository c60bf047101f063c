//! Numbers that the environment gives to tests.

/// Returns a number from the environment: how many seeds, for instance.
///
/// # Panics
/// When the variable is not a number.
#[allow(clippy::panic)]
pub fn number_from_env(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => match text.parse() {
            Ok(number) => number,
            Err(error) => panic!("{variable}={text:?} is not a number: {error}"),
        },
        Err(_) => default,
    }
}
