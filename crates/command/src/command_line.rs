//! The command line of a program: from its words to its exit status.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Error, FromArgMatches};

use crate::exit::{self, Outcome};
use crate::{output, signals, variables};

/// Flags whose empty value is a value like any other: the empty key has a log, and the empty text
/// is a text.
pub const MAY_BE_EMPTY: [&str; 2] = ["key", "note"];

/// Variables of many programs whose specification has an empty value mean that they are not set.
const UNSET_IF_EMPTY: [&str; 1] = ["OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Runs a program: parses its command line, passes the arguments to `program`, and reports the
/// outcome on standard error and as the exit status.
pub fn run<A: CommandFactory + FromArgMatches>(program: impl FnOnce(A) -> Outcome) -> ExitCode {
    let arguments = match parse_from::<A>(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let command = A::command();
            return explain(&variables::explain(&command, variables::name(&command, error)));
        }
    };
    signals::survive_file_size_limit();
    let outcome = program(arguments);
    let _no_clean_up = signals::lock_clean_up();
    exit::report(outcome)
}

/// Prints what is wrong with a command line, or the help or the version that it asks for.
fn explain(error: &Error) -> ExitCode {
    if error.use_stderr() {
        // Standard error may be closed.
        let _ = error.print();
        return ExitCode::from(exit::Status::Usage as u8);
    }
    exit::report(output::write_while_open(|| error.print()).map(drop))
}

/// Parses the words of a command line, the name of the program first. A negative number is the
/// value of a flag, whose parser says what it takes, and no flag by itself. An empty value is
/// refused: it is that of a variable that is not set, as in `--prefix "$PREFIX"`, and would mean as
/// much as no flag.
///
/// # Errors
/// If the words do not fit `A`, or ask for the help or the version.
pub fn parse_from<A: CommandFactory + FromArgMatches>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<A, Error> {
    let mut command = with_negative_numbers(A::command());
    let matches = command.try_get_matches_from_mut(words)?;
    refuse_empty_values(&command, &matches)?;
    A::from_arg_matches(&matches)
}

/// Refuses an empty value of a flag, from the command line or from an environment variable.
fn refuse_empty_values(command: &Command, matches: &ArgMatches) -> Result<(), Error> {
    for flag in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
        let id = flag.get_id().as_str();
        let values = matches.try_get_raw(id).ok().flatten();
        let is_empty = values.is_some_and(|mut values| values.any(OsStr::is_empty));
        if !is_empty || MAY_BE_EMPTY.contains(&id) {
            continue;
        }
        let (variable, remedy) = match (matches.value_source(id), flag.get_env()) {
            (Some(ValueSource::EnvVariable), Some(name)) => {
                if UNSET_IF_EMPTY.iter().any(|unset| name == *unset) {
                    continue;
                }
                (format!(" ({})", name.display()), "unset the variable")
            }
            _ => (String::new(), "leave out the flag"),
        };
        let message = format!("the value of '{flag}'{variable} is empty: give one, or {remedy}\n");
        return Err(Error::raw(ErrorKind::InvalidValue, message));
    }
    let below = matches.subcommand();
    let below = below.and_then(|(name, found)| Some((command.find_subcommand(name)?, found)));
    below.map_or(Ok(()), |(command, matches)| refuse_empty_values(command, matches))
}

fn with_negative_numbers(command: Command) -> Command {
    let is_flag = |argument: &Arg| argument.get_long().is_some();
    command
        .mut_args(|argument| {
            let takes_one = is_flag(&argument) && argument.get_action().takes_values();
            if takes_one { argument.allow_negative_numbers(true) } else { argument }
        })
        .mut_subcommands(with_negative_numbers)
}
