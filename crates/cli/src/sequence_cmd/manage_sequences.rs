//! `esker sequence create`, `list` and `remove`.

use clap::Args;
use esker_client::{SEQUENCE_NUMBER_MAX, SequenceName};
use serde_json::json;

use esker_command::changed_cluster::ChangedCluster;
use esker_command::endpoints::{Endpoints, members};
use esker_command::exit::Outcome;
use esker_command::output::{escaped, print, print_json};
use esker_command::quantity::number;
use esker_command::sequences;

const CREATE: &str = "\
Examples:
  # 1, 2, 3, ...
  esker sequence create invoices

  # To go on after 4711, of another system
  esker sequence create invoices --first 4712";

/// Create a sequence
#[derive(Debug, Args)]
#[command(after_help = CREATE)]
pub struct CreateArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// The name: 1 to 64 letters, digits, dots, hyphens and underscores; a letter or digit first
    #[arg(value_name = "NAME")]
    name: SequenceName,
    /// The first number
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u64>(1..=SEQUENCE_NUMBER_MAX))]
    first: u64,
}

const LIST: &str = "\
Examples:
  esker sequence list
  esker sequence list --json";

/// List the sequences of a cluster
#[derive(Debug, Args)]
#[command(after_help = LIST)]
pub struct ListArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// Print a JSON object for each
    #[arg(long)]
    json: bool,
}

const REMOVE: &str = "\
Example:
  esker sequence remove invoices

The cluster forgets which numbers were taken. A sequence that is created again
under the same name begins again, and keys of the old one are refused.";

/// Remove a sequence
#[derive(Debug, Args)]
#[command(after_help = REMOVE)]
pub struct RemoveArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// The sequence
    #[arg(value_name = "NAME")]
    name: SequenceName,
}

pub async fn create(arguments: &CreateArguments) -> Outcome {
    let CreateArguments { cluster, name, first } = arguments;
    let caller = cluster.caller()?;
    sequences::create(&caller, &members(&caller).await?, name, *first).await?;
    print(&format!("the next number of {name} is {first}\n"))
}

pub async fn list(arguments: &ListArguments) -> Outcome {
    let caller = arguments.endpoints.caller()?;
    let listed = sequences::list(&caller, &members(&caller).await?).await?;
    if arguments.json {
        let mut objects = listed.iter().map(|it| json!({"name": it.name, "next": it.next}));
        return objects.try_for_each(|object| print_json(&object));
    }
    let names: Vec<_> = listed.iter().map(|sequence| escaped(&sequence.name)).collect();
    let width = names.iter().map(String::len).chain(["name".len()]).max().unwrap_or_default();
    let mut table = format!("{:<width$}  next\n", "name");
    for (name, sequence) in names.iter().zip(&listed) {
        let next = match sequence.next {
            next if next > SEQUENCE_NUMBER_MAX => "none is left".to_owned(),
            next => next.to_string(),
        };
        table += &format!("{name:<width$}  {next}\n");
    }
    print(&table)
}

pub async fn remove(arguments: &RemoveArguments) -> Outcome {
    let RemoveArguments { cluster, name } = arguments;
    let caller = cluster.caller()?;
    sequences::remove(&caller, &members(&caller).await?, name).await?;
    print(&format!("there is no sequence {name} any more\n"))
}
