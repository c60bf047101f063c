//! Three nodes of the timestamp service, whose leader is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_client::Client;
use esker_oracle::history::{Call, check};

use super::step::{Figure, StepResult};
use esker_command::exit::Failure;
use esker_command::local_nodes::LocalNodes;
use esker_command::task_runtime::task_runtime;

const NODE_COUNT: u16 = 3;
/// How long timestamps are asked for before the leader is killed, and after.
const LOAD_TIME: Duration = Duration::from_millis(500);

pub fn run(dir: &Path) -> StepResult<Vec<Figure>> {
    task_runtime()?.block_on(kill(dir))
}

async fn kill(dir: &Path) -> StepResult<Vec<Figure>> {
    let begin = Instant::now();
    // Below the ports that the system gives to connections, and others for each tour.
    let own = 40 * (std::process::id() % 70) as u16;
    let ports = (10_000..28_000).step_by(3_000).map(|port| port + own);
    let (program, port) = (std::env::current_exe()?, LocalNodes::free_port(ports, NODE_COUNT)?);
    let nodes = LocalNodes::start(program, dir, port, NODE_COUNT, false, Err).await;
    // The file that it names is removed.
    let why = |failure: Failure| failure.message().split("; see").take(1).collect::<String>();
    let (mut nodes, started) = (nodes.map_err(why)?, begin.elapsed());
    let endpoints = (1..=NODE_COUNT).map(|node| nodes.address(node));
    let client = endpoints.fold(Client::builder(), |all, node| all.endpoint(node)).build()?;
    let (mut calls, mut killed) = (Vec::new(), None);
    while killed.is_none_or(|killed| begin.elapsed() < killed + LOAD_TIME) {
        let now = || begin.elapsed().as_nanos() as u64;
        let (called, range) = (now(), client.timestamps(1).await?);
        calls.push(Call { called, returned: now(), range });
        if killed.is_none() && begin.elapsed() > started + LOAD_TIME {
            nodes.kill(nodes.leader().await?);
            killed = Some(begin.elapsed());
        }
    }
    check(&calls).map_err(|violation| violation.to_string())?;
    let killed = killed.map_or(0, |killed| killed.as_nanos() as u64);
    let after = calls.windows(2).filter(|pair| pair[1].returned > killed);
    let gap = after.map(|pair| pair[1].returned - pair[0].returned).max().unwrap_or(0);
    Ok(vec![
        ("start_ms", started.as_secs_f64() * 1e3, "started in {} ms"),
        ("timestamps", calls.len() as f64, "{} timestamps in order"),
        ("gap_ms", gap as f64 / 1e6, "none for {} ms after the kill"),
    ])
}
