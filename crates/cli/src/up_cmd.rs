//! `esker up`: whether a node answers, for health checks.

use std::time::Duration;

use clap::Args;
use esker_client::{AttemptErrorKind, CallError, TlsError};

use esker_command::endpoints::{call_failure, node_caller, url};
use esker_command::exit::{Failure, Outcome};
use esker_command::output::{escaped, print};
use esker_command::quantity::number;
use esker_command::task_runtime::task_runtime;
use esker_command::tls_flags::TlsFlags;

/// The time for an answer: less than the deadlines of those who run health checks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Where `esker serve` listens by default.
const LISTEN: &str = "127.0.0.1:8080";

const EXAMPLES: &str = "\
Examples:
  # The node of `esker serve` on this machine
  esker up

  # Whether a node serves, or names the node that does
  esker up --ready --endpoint https://10.0.0.1:8080 --ca ca.pem

A node with TLS alone is up without --ca, too; it logs a refused request.
The exit status is 1 if there is no answer within 3 s, and with --ready if the
node is not ready.";

/// Check whether a node answers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UpArguments {
    /// The client address of the node [default: where `esker serve` listens, by ESKER_LISTEN and
    /// HTTP_PORT; with --ca over https://]
    #[arg(long, value_name = "URL", value_parser = url)]
    endpoint: Option<String>,
    #[command(flatten)]
    tls: TlsFlags,
    /// Check whether the node serves, or names the node that does
    #[arg(long)]
    ready: bool,
    #[arg(long, env = "ESKER_LISTEN", value_name = "ADDR", hide = true)]
    listen: Option<String>,
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", hide = true, allow_negative_numbers = true, value_parser = number::<u16>(0..=65_535))]
    http_port: Option<u16>,
}

impl UpArguments {
    /// Where `esker serve` with the same variables listens.
    fn default_endpoint(&self) -> String {
        let listen = self.listen.as_deref().unwrap_or(LISTEN);
        let (host, port) = listen.rsplit_once(':').unwrap_or((listen, ""));
        let port = self.http_port.map_or(port.to_owned(), |port| port.to_string());
        match (self.tls.is_given(), host) {
            (false, _) => format!("http://{host}:{port}"),
            // The name in certificates.
            (true, "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]") => {
                format!("https://localhost:{port}")
            }
            (true, host) => format!("https://{host}:{port}"),
        }
    }
}

pub fn run(arguments: &UpArguments) -> Outcome {
    let runtime = task_runtime()?;
    let asked = runtime.block_on(ask(arguments));
    // A name that is still looked up delays no answer.
    runtime.shutdown_background();
    asked
}

async fn ask(arguments: &UpArguments) -> Outcome {
    let endpoint = arguments.endpoint.clone().unwrap_or_else(|| arguments.default_endpoint());
    let caller = node_caller(&endpoint, &arguments.tls)?;
    // The only one, without its scheme.
    let address = caller.endpoints().concat();
    let path = if arguments.ready { "/ready" } else { "/up" };
    let answer = match caller.get(&address, path, ANSWER_TIMEOUT).await {
        Ok(answer) => answer,
        // A node that speaks TLS alone answers, also without it.
        Err(error) if !arguments.ready && is_of_tls_port(&error) => {
            return print(&format!("{address}: this port speaks TLS\n"));
        }
        Err(error) => return Err(call_failure(&error)),
    };
    let text = escaped(&answer.text());
    match answer.status {
        200 => print(&format!("{address}: {text}\n")),
        status => Err(Failure::failed(format!("{address}: status {status}: {text}"))),
    }
}

/// Whether a node answered without TLS that its port speaks TLS.
fn is_of_tls_port(error: &CallError) -> bool {
    matches!(error.attempt.kind, AttemptErrorKind::Tls(TlsError::TlsNode))
}
