//! Errors of values that come from environment variables.

use std::ffi::OsStr;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

/// Names the variable of a value that is wrong, beside the flag, if the flag was not given.
pub fn name(command: &Command, mut error: Error) -> Error {
    let of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let argument = argument.clone();
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let is_given = std::env::args_os().any(|word| is_flag(&word, &flag));
    if of_value
        && !is_given
        && let Some(variable) = variable(command, &flag)
        && std::env::var_os(&variable).is_some()
    {
        let named = ContextValue::String(format!("{argument} ({variable})"));
        error.insert(ContextKind::InvalidArg, named);
    }
    error
}

/// Describes the number that an invalid value must be, in other words than those of the parser, and
/// how a flag takes a value that stands apart from it.
pub fn explain(command: &Command, error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(why) = misplaced_value(command)
    {
        let message = format!("{why}\n\nFor more information, try '--help'.\n");
        return Error::raw(error.kind(), message);
    }
    let source = std::error::Error::source(&error);
    let Some(cause) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) else {
        return error;
    };
    let why = match cause.kind() {
        IntErrorKind::PosOverflow => "the number is too large",
        IntErrorKind::NegOverflow => "the number is too small",
        _ => "not a whole number",
    };
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (value, argument) = (of(ContextKind::InvalidValue), of(ContextKind::InvalidArg));
    let message = format!(
        "invalid value '{value}' for '{argument}': {why}\n\nFor more information, try '--help'.\n"
    );
    Error::raw(error.kind(), message)
}

/// Whether a word of the command line is this flag, with or without its value.
fn is_flag(word: &OsStr, flag: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Describes the fault of a value that follows its flag and was not parsed as its value: it is not
/// attached with `=`, or is a negative number with a unit.
fn misplaced_value(command: &Command) -> Option<String> {
    let words: Vec<_> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    words.windows(2).find_map(|pair| {
        let [flag, value] = pair else { return None };
        let argument =
            flag.strip_prefix("--").and_then(|name| argument_with_flag(command, name))?;
        let choices = argument.get_possible_values();
        let is_apart = value == "=" || choices.iter().any(|choice| choice.matches(value, false));
        if argument.is_require_equals_set() && is_apart {
            return Some(format!("the value of '{flag}' follows a '=', as in '{flag}=off'"));
        }
        let digits = value.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
        (digits && argument.get_action().takes_values())
            .then(|| format!("invalid value '{value}' for '{flag}': it is negative"))
    })
}

/// The argument of one of the commands that has this flag.
fn argument_with_flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let own = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    own.or_else(|| command.get_subcommands().find_map(|below| argument_with_flag(below, name)))
}

/// The variable of this flag of one of the commands.
fn variable(command: &Command, flag: &str) -> Option<String> {
    let long = flag.strip_prefix("--")?;
    let own = command.get_arguments().find(|argument| argument.get_long() == Some(long));
    let own = own.and_then(|argument| argument.get_env());
    let own = own.map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|below| variable(below, flag)))
}
