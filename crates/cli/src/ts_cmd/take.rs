//! `esker ts`.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use clap::Args;
use esker_client::Client;

use crate::ts_cmd::timestamp_text::{ShownTimestamp, show};
use esker_command::endpoints::{Endpoints, check_one_cluster, client_failure};
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;
use esker_command::quantity::{number, timeout};
use esker_command::signals::Stop;
use esker_command::task_runtime::task_runtime;

/// How often `--watch` asks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The timestamps to ask for.
#[derive(Debug, Args)]
pub struct TakeArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// How many timestamps: of one epoch, with consecutive indexes
    #[arg(long, value_name = "K", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=65_536))]
    n: u32,
    /// Ask for timestamps of 64 bits: decimal numbers, of the epoch's millisecond and the index
    #[arg(long)]
    u64: bool,
    /// Print JSON objects
    #[arg(long)]
    json: bool,
    /// Ask once a second until a signal; failures are reported
    #[arg(long)]
    watch: bool,
    /// How long a request may take, elections included
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    timeout: Duration,
}

pub fn run(arguments: &TakeArguments) -> Outcome {
    task_runtime()?.block_on(async {
        let caller = arguments.endpoints.caller()?;
        let check_one_cluster = check_one_cluster(&caller, arguments.timeout);
        let client = arguments.endpoints.client()?.timeout(arguments.timeout);
        let client = client.build().map_err(|error| client_failure(&error))?;
        if !arguments.watch {
            let (checked, taken) = tokio::join!(check_one_cluster, arguments.take(&client));
            checked?;
            return show_until(&taken?, arguments, &AtomicBool::new(false)).map(drop);
        }
        let failed = |error| Failure::from_io("wait for signals", &error);
        let stop = Stop::on_signals().map_err(failed)?;
        let out = output::file()?;
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let stopped = stop.end_follower(&out, || drop(close)).map_err(failed)?;
        let asked = async {
            check_one_cluster.await?;
            loop {
                match arguments.take(&client).await {
                    Ok(taken) if !show_until(&taken, arguments, &stopped)? => return Ok(()),
                    Ok(_) => {}
                    Err(failure) => complain(failure.message()),
                }
                tokio::time::sleep(WATCH_INTERVAL).await;
            }
        };
        tokio::select! {
            ended = asked => ended,
            _ = closed => Ok(()),
        }
    })
}

impl TakeArguments {
    /// Asks for the timestamps.
    async fn take(&self, client: &Client) -> Outcome<Vec<ShownTimestamp>> {
        let failed = |error| client_failure(&error);
        if self.u64 {
            let numbers = client.timestamps_u64(self.n).await.map_err(failed)?;
            let taken: Option<Vec<_>> = numbers.map(ShownTimestamp::from_u64).collect();
            return taken
                .ok_or_else(|| Failure::failed("a node gave a number that is no timestamp"));
        }
        let range = client.timestamps(self.n).await.map_err(failed)?;
        Ok(range.timestamps().map(ShownTimestamp::from).collect())
    }
}

/// Returns whether to continue: nothing stopped the command, and standard output is still open for
/// reading.
fn show_until(
    taken: &[ShownTimestamp],
    arguments: &TakeArguments,
    stopped: &AtomicBool,
) -> Outcome<bool> {
    for timestamp in taken {
        if stopped.load(SeqCst) || !show(timestamp, arguments.json)? {
            return Ok(false);
        }
    }
    Ok(true)
}
