//! `esker ts`.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use clap::Args;
use esker_oracle::Range;

use crate::ts_cmd::timestamp_text::show;
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
            let (checked, range) = tokio::join!(check_one_cluster, client.timestamps(arguments.n));
            checked?;
            let range = range.map_err(|error| client_failure(&error))?;
            return show_until(range, arguments, &AtomicBool::new(false)).map(drop);
        }
        let failed = |error| Failure::from_io("wait for signals", &error);
        let stop = Stop::on_signals().map_err(failed)?;
        let out = output::file()?;
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let stopped = stop.end_follower(&out, || drop(close)).map_err(failed)?;
        let asked = async {
            check_one_cluster.await?;
            loop {
                match client.timestamps(arguments.n).await {
                    Ok(range) if !show_until(range, arguments, &stopped)? => return Ok(()),
                    Ok(_) => {}
                    Err(error) => complain(client_failure(&error).message()),
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

/// Returns whether to continue: nothing stopped the command, and standard output is still open for
/// reading.
fn show_until(range: Range, arguments: &TakeArguments, stopped: &AtomicBool) -> Outcome<bool> {
    for timestamp in range.timestamps() {
        if stopped.load(SeqCst) || !show(timestamp, arguments.json)? {
            return Ok(false);
        }
    }
    Ok(true)
}
