//! `esker ts`.

use std::time::Duration;

use clap::Args;
use esker_client::Client;
use esker_oracle::Range;
use tokio::signal::unix::{SignalKind, signal};

use crate::endpoints::Endpoints;
use crate::exit::{Failure, Outcome, complain, with_causes};
use crate::quantity::{number, timeout};
use crate::ts_cmd::shown::show;

/// How often `--watch` asks.
const WATCH: Duration = Duration::from_secs(1);

/// What to ask for.
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of_io("start threads", &error))?;
    runtime.block_on(async {
        let of_one_cluster = arguments.endpoints.of_one_cluster(arguments.timeout);
        let mut builder = Client::builder().timeout(arguments.timeout);
        for endpoint in arguments.endpoints.given() {
            builder = builder.endpoint(endpoint);
        }
        let client = builder.build().map_err(failed)?;
        if !arguments.watch {
            let (checked, range) = tokio::join!(of_one_cluster, client.timestamps(arguments.n));
            checked?;
            return show_all(range.map_err(failed)?, arguments).map(drop);
        }
        of_one_cluster.await?;
        let failed = |error| Failure::of_io("catch signals", &error);
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let asked = async {
            loop {
                match client.timestamps(arguments.n).await {
                    Ok(range) if !show_all(range, arguments)? => return Ok(()),
                    Ok(_) => {}
                    Err(error) => complain(&with_causes(&error)),
                }
                tokio::time::sleep(WATCH).await;
            }
        };
        tokio::select! {
            ended = asked => ended,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

fn failed(error: esker_client::Error) -> Failure {
    Failure::failed(with_causes(&error))
}

/// Returns whether standard output is still open for reading.
fn show_all(range: Range, arguments: &TakeArguments) -> Outcome<bool> {
    for timestamp in range.timestamps() {
        if !show(timestamp, arguments.json)? {
            return Ok(false);
        }
    }
    Ok(true)
}
