//! The faults, one at a time, under clients that never stop: what these get stays unique and in
//! order.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::time::{Duration, Instant};

use esker_testkit::number_from_env;
use rustix::process::Signal;

use crate::child::{Command, Disk, ROUND_TRIP};
use crate::clients::Clients;
use crate::namespaces::Namespaces;
use crate::network::Network;
use crate::nodes::{NODES, Nodes, uses_tls};
use crate::proxies::Proxies;

/// Longer than an election takes.
const ELECTION_TIME: Duration = ROUND_TRIP.saturating_mul(40);
/// Longer than a node waits for another before it gives a connection up.
const CONNECTION_TIME: Duration = Duration::from_millis(1300);
const HOUR_SECONDS: i64 = 3600;
/// Calls that show that timestamps are issued: some of each client.
const PROGRESS_CALLS: u64 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The leader is killed, and comes back after another has served.
    LeaderKilled,
    /// The leader is killed, and comes back within an epoch.
    LeaderRestarts,
    /// All are killed, and come back within an epoch.
    AllRestart,
    /// All are stopped as an operator stops them, and come back.
    OrderlyRestart,
    /// The leader is stopped for longer than an election, with clients that wait for it.
    LeaderStopped,
    /// The leader is cut off from the others, but not from clients.
    LeaderCutOff,
    /// Leadership goes to another node and back, within an epoch.
    ThereAndBack,
    /// Two nodes are killed, and come back.
    QuorumLost,
    /// The clock of the leader goes forward by an hour, and back.
    ClockAhead,
    /// The clock of the leader goes back by an hour, and forward.
    ClockBehind,
    /// The disk of the leader stalls for a while.
    DiskStalls,
    /// The disk of the leader is full, until it has space again.
    DiskFull,
    /// The disk of the leader fails.
    DiskFails,
}

async fn inflict(fault: Fault, nodes: &mut Nodes, clients: &Clients) {
    let leader = nodes.leader().await;
    let other = leader % NODES + 1;
    let all = 1..=NODES;
    match fault {
        Fault::LeaderKilled => {
            nodes.kill(leader);
            clients.progress(PROGRESS_CALLS).await;
            nodes.start(leader);
        }
        Fault::LeaderRestarts => {
            nodes.kill(leader);
            nodes.start(leader);
        }
        Fault::AllRestart => {
            all.clone().for_each(|node| nodes.kill(node));
            all.for_each(|node| nodes.start(node));
        }
        Fault::OrderlyRestart => {
            all.clone().for_each(|node| nodes.tell(node, Command::Stop));
            for node in all.clone() {
                assert_eq!(nodes.ended(node).await, Some(0));
            }
            all.for_each(|node| nodes.start(node));
        }
        Fault::LeaderStopped => {
            nodes.signal(leader, Signal::STOP);
            clients.progress(PROGRESS_CALLS).await;
            tokio::time::sleep(ELECTION_TIME).await;
            nodes.signal(leader, Signal::CONT);
        }
        Fault::LeaderCutOff => {
            nodes.cut_off(Some(leader));
            nodes.leader_after(other, leader).await;
            clients.progress(PROGRESS_CALLS).await;
            tokio::time::sleep(CONNECTION_TIME).await;
            nodes.cut_off(None);
        }
        Fault::ThereAndBack => {
            nodes.transfer(other).await;
            nodes.transfer(leader).await;
        }
        Fault::QuorumLost => {
            let gone = all.filter(|node| *node != leader);
            gone.clone().for_each(|node| nodes.kill(node));
            tokio::time::sleep(ELECTION_TIME).await;
            gone.for_each(|node| nodes.start(node));
        }
        Fault::ClockAhead | Fault::ClockBehind => {
            let hour =
                if matches!(fault, Fault::ClockAhead) { HOUR_SECONDS } else { -HOUR_SECONDS };
            nodes.tell(leader, Command::Clock(hour));
            epochs_pass(clients).await;
            // The next leader has to go on from there.
            nodes.transfer(other).await;
            clients.progress(PROGRESS_CALLS).await;
            nodes.transfer(leader).await;
            epochs_pass(clients).await;
            nodes.tell(leader, Command::Clock(0));
        }
        Fault::DiskStalls => {
            nodes.tell(leader, Command::Disk(Disk::Stalled));
            nodes.leader_after(other, leader).await;
            clients.progress(PROGRESS_CALLS).await;
            nodes.tell(leader, Command::Disk(Disk::Well));
        }
        Fault::DiskFull | Fault::DiskFails => {
            let disk = if matches!(fault, Fault::DiskFull) { Disk::Full } else { Disk::Failing };
            nodes.tell(leader, Command::Disk(disk));
            nodes.leader_after(other, leader).await;
            clients.progress(PROGRESS_CALLS).await;
            assert_eq!(nodes.ended(leader).await, Some(1));
            nodes.start(leader);
        }
    }
    clients.progress(PROGRESS_CALLS).await;
}

/// Waits until the epoch has advanced twice under the clock as it is.
async fn epochs_pass(clients: &Clients) {
    tokio::time::sleep(Duration::from_millis(2200)).await;
    clients.progress(PROGRESS_CALLS).await;
}

/// Two rounds of each fault, or as many as the environment says, and half as many with leaders that
/// answer under their lease.
async fn go_through(faults: &[Fault]) {
    for lease_reads in [false, true] {
        go_through_with(faults, lease_reads).await;
    }
}

async fn go_through_with(faults: &[Fault], lease_reads: bool) {
    let rounds = number_from_env("ESKER_SOAK", 2);
    let rounds = if lease_reads { rounds.div_ceil(2) } else { rounds };
    go_through_in(Network::Proxies(Proxies::new()), faults, lease_reads, rounds).await;
}

async fn go_through_in(network: Network, faults: &[Fault], lease_reads: bool, rounds: u64) {
    let mut faults = faults.to_vec();
    if uses_tls() && matches!(network, Network::Proxies(_)) {
        // Over TLS no proxy knows who connects. A cable is pulled in another test.
        faults.retain(|fault| *fault != Fault::LeaderCutOff);
    }
    let mut nodes = Nodes::start_all(network, lease_reads).await;
    if lease_reads {
        nodes.leases_are_on().await;
    }
    let clients = Clients::start(&nodes.addresses(), nodes.authority().as_deref());
    clients.progress(PROGRESS_CALLS).await;
    let begun = Instant::now();
    for round in 1..=rounds {
        for fault in &faults {
            inflict(*fault, &mut nodes, &clients).await;
            eprintln!("{:?}: round {round}, {fault:?}, leases {lease_reads}", begun.elapsed());
        }
    }
    let calls = clients.check().await;
    eprintln!("{:?}: {calls} calls, in order", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_and_restart() {
    use Fault::*;
    go_through(&[LeaderKilled, LeaderRestarts, AllRestart, OrderlyRestart, QuorumLost]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_are_stopped_cut_off_and_changed() {
    use Fault::*;
    go_through(&[LeaderStopped, LeaderCutOff, ThereAndBack]).await;
}

/// As above, and what the kernel does to connections whose packets are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_whose_cable_is_pulled() {
    match Namespaces::new() {
        Ok(spaces) => {
            let rounds = number_from_env("ESKER_SOAK", 2);
            let faults = &[Fault::LeaderCutOff];
            go_through_in(Network::Namespaces(spaces), faults, true, rounds).await;
        }
        Err(why) => eprintln!("SKIPPED: no network namespaces: {why}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_wrong() {
    let faults = &[Fault::ClockAhead, Fault::ClockBehind];
    // At the same time, because most of it is waiting for epochs.
    tokio::join!(go_through_with(faults, false), go_through_with(faults, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_stall_are_full_and_fail() {
    go_through(&[Fault::DiskStalls, Fault::DiskFull, Fault::DiskFails]).await;
}
