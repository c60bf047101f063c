//! `esker-bench log`: appending, reading and opening.

mod append;
pub mod build_log;
mod catchup;
mod fanout;
pub mod log_arguments;
mod offsets;
mod open;
mod plan;

use esker_command::exit::Outcome;

use self::log_arguments::LogBenchArguments;

/// Runs `esker-bench log`.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    arguments.check()?;
    match arguments {
        arguments if arguments.open => open::run(arguments),
        arguments if arguments.catchup => catchup::run(arguments),
        arguments if arguments.offsets => offsets::run(arguments),
        LogBenchArguments { readers: Some(readers), .. } => fanout::run(arguments, *readers),
        arguments => append::run(arguments),
    }
}
