//! Three nodes of the timestamp service, whose leader is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_client::Client;
use esker_oracle::history::{Call, check};
use esker_server::{Members, ask};

use super::step::{Figure, StepResult, millis};
use esker_command::local_nodes::LocalNodes;

/// How long timestamps are asked for before the leader is killed, and after.
const LOAD_TIME: Duration = Duration::from_millis(500);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

pub fn run(dir: &Path) -> StepResult<Vec<Figure>> {
    tokio::runtime::Runtime::new()?.block_on(kill(dir))
}

async fn kill(dir: &Path) -> StepResult<Vec<Figure>> {
    let begin = Instant::now();
    let mut nodes = start(dir).await?;
    let started = begin.elapsed();
    let client = Client::builder().timeout(CALL_TIMEOUT);
    let client = (1..=3).fold(client, |all, node| all.endpoint(nodes.address(node))).build()?;
    let now = || begin.elapsed().as_nanos() as u64;
    let (mut calls, mut killed) = (Vec::new(), None);
    while killed.is_none_or(|killed| begin.elapsed() < killed + LOAD_TIME) {
        let (called, range) = (now(), client.timestamps(1).await?);
        calls.push(Call { called, returned: now(), range });
        if killed.is_none() && begin.elapsed() > started + LOAD_TIME {
            let members = ask(&nodes.address(1), "/members", None, CALL_TIMEOUT).await?;
            let members: Members = serde_json::from_slice(&members.body)?;
            nodes.kill(u16::try_from(members.leader.ok_or("there is no leader")?.node)?);
            killed = Some(begin.elapsed());
        }
    }
    check(&calls).map_err(|violation| violation.to_string())?;
    let killed = killed.map_or(0, |killed| killed.as_nanos() as u64);
    let after = calls.windows(2).filter(|pair| pair[1].returned > killed);
    let gap = after.map(|pair| pair[1].returned - pair[0].returned).max().unwrap_or(0);
    Ok(vec![
        ("start_ms", millis(started), "started in {} ms"),
        ("timestamps", calls.len() as f64, "{} timestamps in order"),
        ("gap_ms", gap as f64 / 1e6, "none for {} ms after the kill"),
    ])
}

/// Starts the nodes on ports below those that the system gives to connections. Other processes may
/// have some of them, or take them first.
async fn start(dir: &Path) -> StepResult<LocalNodes> {
    let (mut why, own) = (String::new(), 40 * (std::process::id() % 70) as u16);
    for port in [10_000, 13_000, 16_000, 19_000, 22_000, 25_000] {
        match LocalNodes::start(
            std::env::current_exe()?,
            &dir.join(port.to_string()),
            port + own,
            3,
            Err,
        )
        .await
        {
            Ok(nodes) => return Ok(nodes),
            // The file that it names is removed.
            Err(failure) => why = failure.message().split("; see").take(1).collect(),
        }
    }
    Err(why.into())
}
