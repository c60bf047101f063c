//! Errors of values that come from environment variables.

use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use crate::arguments::Arguments;

/// Names the variable of a value that is wrong, beside the flag, if the flag was not given.
pub fn name(mut error: Error) -> Error {
    let of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let argument = argument.clone();
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let is_given = std::env::args_os().any(|word| is_flag(&word, &flag));
    if of_value
        && !is_given
        && let Some(variable) = variable(&Arguments::command(), &flag)
        && std::env::var_os(&variable).is_some()
    {
        let named = ContextValue::String(format!("{argument} ({variable})"));
        error.insert(ContextKind::InvalidArg, named);
    }
    error
}

/// Whether a word of the command line is this flag, with or without its value.
fn is_flag(word: &OsStr, flag: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The variable of this flag of one of the commands.
fn variable(command: &Command, flag: &str) -> Option<String> {
    let long = flag.strip_prefix("--")?;
    let own = command.get_arguments().find(|argument| argument.get_long() == Some(long));
    let own = own.and_then(|argument| argument.get_env());
    let own = own.map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|below| variable(below, flag)))
}
