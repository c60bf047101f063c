//! `esker ts`.

use std::time::Duration;

use clap::Args;
use esker_oracle::{Range, Timestamp};
use esker_server::{Answer, ask_leader};
use tokio::signal::unix::{SignalKind, signal};

use crate::endpoints::Endpoints;
use crate::exit::{Failure, Outcome};
use crate::output::escaped;
use crate::quantity::time;
use crate::ts_cmd::shown::show;

/// How often `--watch` asks.
const WATCH: Duration = Duration::from_secs(1);

/// What to ask for.
#[derive(Debug, Args)]
pub struct TakeArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// How many timestamps: of one epoch, with consecutive indexes
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    n: u32,
    /// Print JSON objects
    #[arg(long)]
    json: bool,
    /// Ask once a second until a signal
    #[arg(long)]
    watch: bool,
    /// How long to look for a leader
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    timeout: Duration,
}

pub fn run(arguments: &TakeArguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of_io("start threads", &error))?;
    runtime.block_on(async {
        arguments.endpoints.of_one_cluster().await?;
        if !arguments.watch {
            return take(arguments).await.map(drop);
        }
        let failed = |error| Failure::of_io("catch signals", &error);
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let asked = async {
            while take(arguments).await? {
                tokio::time::sleep(WATCH).await;
            }
            Ok(())
        };
        tokio::select! {
            ended = asked => ended,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

/// Asks once. Returns whether standard output is still open for reading.
async fn take(arguments: &TakeArguments) -> Outcome<bool> {
    let path = format!("/timestamp?n={}&format=range", arguments.n);
    let answer = ask_leader(arguments.endpoints.given(), &path, None, arguments.timeout).await;
    let answer = answer.map_err(|error| Failure::failed(error.to_string()))?;
    let range = range(&answer).filter(|range| range.count == arguments.n);
    let Some(range) = range else {
        // Each answer of a node has an id.
        let is_node = answer.headers.contains_key("x-request-id");
        let by = if is_node { "" } else { "what answers there is no Esker node: " };
        return Err(Failure::failed(format!("{by}{}: {}", answer.status, first_line(&answer))));
    };
    for timestamp in range.timestamps() {
        if !show(timestamp, arguments.json)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Another server may answer with a page.
fn first_line(answer: &Answer) -> String {
    let line: String = answer.text().lines().next().unwrap_or_default().chars().take(200).collect();
    escaped(&line)
}

/// The timestamps of an answer.
fn range(answer: &Answer) -> Option<Range> {
    let (first, count) = answer.body.split_first_chunk::<16>()?;
    let count = u64::from_be_bytes(count.try_into().ok()?);
    let count = u32::try_from(count).ok().filter(|_| answer.status.is_success())?;
    let first = Timestamp::from_bytes(*first);
    first.index.checked_add(count.into())?;
    Some(Range { first, count })
}
