//! The floor: the same HTTP server on this machine, with an answer that is always the same.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use esker_client::NodeCaller;
use esker_oracle::{Timestamp, TimestampWidth};
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;

use crate::timestamp::load::Load;
use crate::timestamp::multiplexed::Dialer;
use crate::timestamp::timestamp_arguments::{Protocol, TsBenchArguments};
use esker_command::endpoints::client_failure;
use esker_command::exit::{Failure, Outcome};
use esker_command::output::print;

/// The server of the floor
#[derive(Debug, Args)]
pub struct TsFloorArguments {
    /// Timestamps of an answer
    #[arg(long, default_value_t = 1)]
    n: u32,
    /// Whether the answer is a range
    #[arg(long)]
    range: bool,
    /// Whether its timestamps have 64 bits
    #[arg(long)]
    u64: bool,
    /// Whether it is HTTP/3
    #[arg(long)]
    http3: bool,
}

/// Serves until it is killed. Prints its port.
pub fn run(arguments: &TsFloorArguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_io("start threads", &error))?;
    runtime.block_on(async {
        let body = body(arguments);
        if arguments.http3 {
            return over_http3(body).await;
        }
        let of_io = |error| Failure::from_io("listen", &error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(of_io)?;
        print(&format!("{}\n", listener.local_addr().map_err(of_io)?.port()))?;
        loop {
            let (stream, _) = listener.accept().await.map_err(of_io)?;
            stream.set_nodelay(true).map_err(of_io)?;
            let body = body.clone();
            tokio::spawn(async move {
                let answer = service_fn(move |_| {
                    let body = body.clone();
                    async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
                });
                let builder = Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    })
}

fn body(arguments: &TsFloorArguments) -> Bytes {
    let timestamp = |index: u64| match arguments.u64 {
        true => index.to_be_bytes().to_vec(),
        false => Timestamp { epoch: 1, index }.to_bytes().to_vec(),
    };
    let count = u64::from(arguments.n);
    match arguments.range {
        true => [timestamp(1), count.to_be_bytes().to_vec()].concat().into(),
        false => (1..=count).flat_map(timestamp).collect(),
    }
}

async fn over_http3(body: Bytes) -> Outcome {
    let (port, serving) = esker_server::static_http3(body)
        .map_err(|error| Failure::failed(format!("cannot start the floor: {error}")))?;
    print(&format!("{port}\n"))?;
    serving.await;
    Ok(())
}

/// The server in a process of its own, which ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Requests a second that the floor answers under the same load. It has no TLS but that of HTTP/3.
pub async fn rate(arguments: &TsBenchArguments, time: Duration) -> Outcome<f64> {
    let program =
        std::env::current_exe().map_err(|error| Failure::from_io("find esker-bench", &error))?;
    let mut command = Command::new(program);
    command.args(["floor-server", "--n", &arguments.n.to_string()]);
    let format = arguments.format();
    if format.is_range {
        command.arg("--range");
    }
    if format.width == TimestampWidth::Bits64 {
        command.arg("--u64");
    }
    if arguments.protocol == Protocol::H3 {
        command.arg("--http3");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let server = command.spawn().map_err(|error| Failure::from_io("start the floor", &error))?;
    let mut server = Server(server);
    let mut port = String::new();
    if let Some(out) = server.0.stdout.take() {
        let read = BufReader::new(out).read_line(&mut port);
        read.map_err(|error| Failure::from_io("read the port of the floor", &error))?;
    }
    let address = format!("127.0.0.1:{}", port.trim());
    let server = NodeCaller::new([&address], None).map_err(|error| client_failure(&error))?;
    let dialer = Dialer::new(arguments.protocol, None, None)?;
    let load = Load::new(arguments, dialer, server, address);
    let (tally, time) = load.run(time).await?;
    Ok(tally.latencies.count() as f64 / time.as_secs_f64().max(1e-9))
}
