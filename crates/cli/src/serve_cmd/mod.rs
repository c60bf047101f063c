//! `esker serve`: a node of the timestamp service.

mod file;
mod flags;
mod log_lines;
mod logging;

pub use flags::ServeArguments;

use esker_server::{Server, ServerError};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, Outcome};

/// Runs `esker serve`, until a signal or a failure ends it.
pub fn run(arguments: &ServeArguments) -> Outcome {
    let file = file::read(arguments.config.as_deref())?;
    logging::start(&arguments.log_options(&file)?)?;
    let options = arguments.options(&file)?;
    let log = options.log_dir();
    let of_server = |error: ServerError| match error {
        ServerError::Option(why) => Failure::usage(why),
        ServerError::Log(error) => Failure::of_consensus(&error, &log),
        ServerError::Io(what, error) => Failure::of_io(&what, &error),
        error => Failure::failed(error.to_string()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of_io("start threads", &error))?;
    runtime.block_on(async {
        // Before the node starts: a signal in between stops it as one after it does.
        let failed = |error| Failure::of_io("catch signals", &error);
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut signals = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let server = tokio::select! {
            biased;
            server = Server::start(options) => server.map_err(of_server)?,
            // Nothing was promised yet. What blocks is not waited for.
            _ = signals() => return Ok(()),
        };
        let failure = tokio::select! {
            failure = server.failed() => Err(failure),
            signal = signals() => {
                tracing::info!(signal, "stops");
                Ok(())
            }
        };
        let stopped = server.stop().await;
        failure.and(stopped).map_err(of_server)
    })
}
