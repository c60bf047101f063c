//! `esker sequence next`.

use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use esker_client::{SequenceError, SequenceErrorKind, SequenceName};
use esker_oracle::Timestamp;
use serde_json::json;

use esker_command::endpoints::{Endpoints, check_one_cluster, client_failure, sequence_failure};
use esker_command::exit::{Failure, Outcome};
use esker_command::output::{print, shell_word};
use esker_command::quantity::{number, timeout};

const EXAMPLES: &str = "\
Examples:
  # The next number
  esker sequence next invoices

  # Three numbers; the same command gets the same ones again, also after a crash
  key=$(esker ts | cut -d ' ' -f 1)
  esker sequence next invoices -n 3 --key $key

A number that was taken is used up, and no other command gets it. If the outcome
is unknown, the command prints how to try again under the same key.";

/// Take the next numbers of a sequence
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct NextArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// The sequence
    #[arg(value_name = "NAME")]
    name: SequenceName,
    /// How many numbers, which are consecutive
    #[arg(short, long, value_name = "K", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=65_536))]
    n: u32,
    /// The key of the request: a timestamp of this cluster; the same key gets the same numbers
    /// again [default: a new timestamp]
    #[arg(long, value_name = "TIMESTAMP", value_parser = key)]
    key: Option<Timestamp>,
    /// Print JSON objects
    #[arg(long)]
    json: bool,
    /// How long the request may take, elections included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    timeout: Duration,
}

fn key(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "32 hexadecimal digits, as `esker ts` prints them".into())
}

pub async fn run(arguments: &NextArguments) -> Outcome {
    let caller = arguments.endpoints.caller()?;
    let client = arguments.endpoints.client()?.timeout(arguments.timeout);
    let client = client.build().map_err(|error| client_failure(&error))?;
    let deadline = Instant::now() + arguments.timeout;
    // Before anything is taken.
    check_one_cluster(&caller, arguments.timeout).await?;
    let key = match arguments.key {
        Some(key) => key,
        None => {
            let taken = client.timestamps_by(1, deadline).await;
            taken.map_err(|error| client_failure(&error))?.first
        }
    };
    let words = || std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let again = || again(words().collect(), arguments.key.is_none().then_some(key));
    let name = arguments.name.as_str();
    let taken = client.sequence_next_by(name, arguments.n, Some(key), deadline).await;
    let numbers = taken.map_err(|error| failure(&error, &again()))?;
    let mut text = String::new();
    for number in numbers {
        // Writing to a string does not fail.
        let _ = match arguments.json {
            true => writeln!(text, "{}", json!({"name": name, "number": number})),
            false => writeln!(text, "{number}"),
        };
    }
    print(&text).map_err(|failure| {
        failure.or_else(&format!("the numbers are taken; to print them again: {}", again()))
    })
}

/// The failure of a call, with the command that tries again if numbers may have been taken.
fn failure(error: &SequenceError, again: &str) -> Failure {
    let failure = sequence_failure(error);
    match (&error.kind, error.may_have_taken) {
        (_, false) => failure,
        (SequenceErrorKind::KeyTooOld(_), true) => {
            failure.or_else("whether an attempt before took numbers is unknown")
        }
        _ => failure.or_else(&format!("numbers may have been taken; to get them: {again}")),
    }
}

/// Returns the words of a command line of `esker sequence next` for a shell, with this key.
fn again(mut words: Vec<String>, key: Option<Timestamp>) -> String {
    /// The program, `sequence` and `next`.
    const COMMAND_WORDS: usize = 3;
    if let Some(program) = words.first_mut() {
        *program = "esker".into();
    }
    if let Some(key) = key {
        words.insert(words.len().min(COMMAND_WORDS), format!("--key={key}"));
    }
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_tries_again_has_the_key_once() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let key = Timestamp { epoch: 7, index: 1 };
        let line = "/bin/esker sequence next -n 3 -- invoices";
        let expected = format!("esker sequence next --key={key} -n 3 -- invoices");
        assert_eq!(again(words(line), Some(key)), expected);
        assert_eq!(again(words(&expected), None), expected);
        let quoted = [words("esker sequence next --ca"), vec!["my ca.pem".into()]].concat();
        assert_eq!(again(quoted, None), "esker sequence next --ca 'my ca.pem'");
    }
}
