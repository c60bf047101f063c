//! `esker cluster status`.

use std::time::{Duration, Instant};

use clap::Args;
use esker_client::{CallError, NodeAnswer, NodeCaller};
use esker_server::{MemberInfo, Members, NodeStatus};
use serde_json::json;

use super::clocks;
use esker_command::endpoints::{Endpoints, get_all, members};
use esker_command::exit::{Failure, Outcome};
use esker_command::output::{escaped, print, print_json};

const STATUS_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the nodes may name no leader: elections take less.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  esker cluster status
  esker cluster status --endpoint http://10.0.0.2:8080 --json | jq .

The exit status is 1 if no quorum answers, if no node leads, and if the leader
can issue no timestamps.";

const CHANGING: &str = "\
The voters are being changed. Until that is done, most of those before it and most
of those after it have to answer, or no node leads.
";

/// Show the nodes of a cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// Print one JSON object for each node
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: &StatusArguments) -> Outcome {
    let caller = arguments.endpoints.caller()?;
    let mut known = members(&caller).await?;
    let statuses = statuses(&caller, &known).await;
    let newest = newest_leader(statuses.iter().filter_map(|status| status.as_ref().ok()));
    known.leader = known.members.iter().find(|member| Some(member.node) == newest).cloned();
    let Members { leader, members, cluster, changing } = &known;
    if !arguments.json {
        let leader =
            leader.as_ref().map_or("none is known".into(), |leader| leader.node.to_string());
        print(&format!("cluster {}, leader {leader}\n", escaped(cluster)))?;
        print(
            "node  role       term  applied  epoch                clients                raft\n",
        )?;
    }
    let mut tally = Tally::default();
    for (member, status) in members.iter().zip(statuses) {
        let leads = leader.as_ref().is_some_and(|leader| leader.node == member.node);
        tally.add(member, status.as_ref().ok(), leads);
        if arguments.json {
            print_json(&json!({
                "cluster": cluster,
                "nodeID": member.node,
                "addr": member.addr,
                "raftAddr": member.raft,
                "voter": member.voter,
                "leads": leads,
                "status": status.as_ref().ok(),
                "error": status.as_ref().err(),
                "changing": changing,
            }))?;
        } else {
            print(&line(member, &status))?;
        }
    }
    if !arguments.json {
        tally.print_notes(&caller, &known).await?;
    }
    tally.outcome(leader.is_some())
}

/// Totals over the statuses of the members.
#[derive(Default)]
struct Tally {
    voters: usize,
    /// Voters that answered.
    answered: usize,
    /// The first clock that epochs do not follow: whether it is ahead, and its description.
    step: Option<(bool, String)>,
    leases: bool,
    reverted: Vec<u64>,
    /// Why the leader issues no timestamps.
    blocked: Option<String>,
}

impl Tally {
    fn add(&mut self, member: &MemberInfo, status: Option<&NodeStatus>, leads: bool) {
        self.voters += usize::from(member.voter);
        self.answered += usize::from(member.voter && status.is_some());
        self.step = self.step.take().or_else(|| clock_step(status?));
        let Some(leader) = status.filter(|_| leads) else { return };
        self.leases |= leader.lease_reads;
        self.reverted.extend(&leader.reverted);
        self.blocked = self.blocked.take().or_else(|| leader.blocked.clone());
    }

    async fn print_notes(&self, caller: &NodeCaller, known: &Members) -> Outcome {
        if self.leases {
            print("Lease reads are on; the guarantees say what they assume of clocks.\n")?;
        }
        if known.changing {
            print(CHANGING)?;
        }
        for node in &self.reverted {
            print(&reversion(*node))?;
        }
        if let Some((is_ahead, step)) = &self.step {
            print(step)?;
            match clocks::disagreement(caller, known).await {
                Some(why) => print(&format!("But {why}.\n"))?,
                None if *is_ahead => {
                    print("If it is right: `esker cluster follow-clock` follows it at once.\n")?;
                }
                None => {
                    print(
                        "Epochs follow the clock again once it shows a later time than they have.\n",
                    )?;
                }
            }
        }
        Ok(())
    }

    fn outcome(self, has_leader: bool) -> Outcome {
        let Self { voters, answered, blocked, .. } = self;
        match (answered * 2 > voters, has_leader) {
            (true, true) => blocked.map_or(Ok(()), |why| {
                Err(Failure::failed(format!("the leader issues no timestamps: {}", escaped(&why))))
            }),
            (true, false) => Err(Failure::failed(
                "no node leads: most of the nodes that vote answer here, and none of them hears a \
                 quorum; there are no timestamps until they reach one another (--raft-listen)",
            )),
            (false, _) => Err(Failure::failed(format!(
                "no quorum answers: {answered} of {voters} nodes that vote; there are no timestamps \
                 until most of them run"
            ))),
        }
    }
}

/// Asks all members at once, and returns their answers in their order. While most voters answer and
/// name no leader, there may be an election: then they are asked again.
async fn statuses(caller: &NodeCaller, known: &Members) -> Vec<Result<NodeStatus, String>> {
    let deadline = Instant::now() + ELECTION_TIMEOUT;
    let addresses: Vec<_> = known.members.iter().map(|member| member.addr.clone()).collect();
    loop {
        let answers = get_all(caller, &addresses, "/status", STATUS_CALL_TIMEOUT).await;
        let answers = known.members.iter().zip(answers);
        let statuses: Vec<_> =
            answers.map(|(member, (_, answer))| status(member, &known.cluster, answer)).collect();
        let voters = known.members.iter().zip(&statuses).filter(|(member, _)| member.voter);
        let silent = voters.clone().filter(|(_, status)| status.is_err()).count();
        let has_quorum = silent * 2 < voters.count();
        let leader = newest_leader(statuses.iter().filter_map(|status| status.as_ref().ok()));
        if !has_quorum || leader.is_some() || Instant::now() >= deadline {
            return statuses;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The leader that a node of the highest term names: one of an earlier term was deposed.
fn newest_leader<'a>(statuses: impl Iterator<Item = &'a NodeStatus>) -> Option<u64> {
    let named = statuses.filter_map(|status| Some((status.term, status.leader?)));
    named.max_by_key(|(term, _)| *term).map(|(_, leader)| leader)
}

/// The status in the answer of a member. Another node, or one of another cluster, may answer at its
/// address.
fn status(
    member: &MemberInfo,
    cluster: &str,
    answer: Result<NodeAnswer, CallError>,
) -> Result<NodeStatus, String> {
    let failed = |why: String| format!("does not answer: {why}");
    let answer = answer.map_err(|error| failed(error.attempt.kind.to_string()))?;
    let status: NodeStatus = serde_json::from_slice(&answer.body)
        .map_err(|_| failed(format!("it answered {}", answer.status)))?;
    match (status.cluster == cluster, status.node == member.node) {
        (true, true) => Ok(status),
        (false, _) => Err(format!("another cluster is there: {}", status.cluster)),
        (_, false) => Err(format!("node {} is there", status.node)),
    }
}

/// The note about a clock that epochs do not follow, and whether it is ahead.
fn clock_step(NodeStatus { node, clock_step_ms, .. }: &NodeStatus) -> Option<(bool, String)> {
    let by = format!("{:.1} s", clock_step_ms.unsigned_abs() as f64 / 1e3);
    match clock_step_ms.signum() {
        0 => None,
        1 => Some((
            true,
            format!(
                "The clock of node {node} is ahead, by {by} more than --max-clock-step.\n\
                 Epochs follow it at twice real time.\n"
            ),
        )),
        _ => Some((
            false,
            format!(
                "The clock of node {node} is {by} behind the epoch, which rises all the same.\n"
            ),
        )),
    }
}

/// The remedy for a node that lacked entries that it had acknowledged.
fn reversion(node: u64) -> String {
    format!(
        "The log of node {node} was reverted: an older copy of its folder\n\
         was started, or its disk lost what it had synced. It gets its entries again,\n\
         but timestamps may have come twice. Remove it, and add it under a new number,\n\
         with an empty folder.\n"
    )
}

fn line(member: &MemberInfo, status: &Result<NodeStatus, String>) -> String {
    let MemberInfo { node, addr, raft, .. } = member;
    let (addr, raft) = (escaped(addr), escaped(raft));
    match status {
        Ok(status) => {
            let NodeStatus { role, term, applied, epoch, .. } = status;
            let applied = applied.map_or("-".into(), |applied| applied.to_string());
            let role = escaped(role);
            format!(
                "{node:<4}  {role:<9}  {term:<4}  {applied:<7}  {epoch:<19}  {addr:<21}  {raft}\n"
            )
        }
        Err(why) => format!("{node:<4}  {}  {addr}  {raft}\n", escaped(why)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_reverted_log_has_a_remedy() {
        let said = reversion(u64::MAX);
        assert!(said.contains("Remove it") && said.lines().all(|line| line.len() <= 80), "{said}");
    }

    #[test]
    fn a_leader_that_was_deposed_is_not_named() {
        let status = |node: u64, term: u64, leader: Option<u64>| {
            let status = json!({
                "nodeID": node, "cluster": "", "role": "follower", "term": term, "leader": leader,
                "last": 1, "applied": 1, "epoch": 1, "disk_wait_ms": 0, "version": "",
            });
            serde_json::from_value::<NodeStatus>(status).unwrap()
        };
        let all = [status(1, 1, Some(1)), status(2, 2, Some(3)), status(3, 3, None)];
        assert_eq!(newest_leader(all.iter()), Some(3));
        assert_eq!(newest_leader(all[2..].iter()), None);
    }

    #[test]
    fn a_clock_that_epochs_do_not_follow_has_a_line() {
        let said = |ms: i64| {
            let status = json!({
                "nodeID": 2, "cluster": "", "role": "leader", "term": 1, "leader": 2, "last": 1,
                "applied": 1, "epoch": 1, "clock_step_ms": ms, "disk_wait_ms": 0, "version": "",
            });
            clock_step(&serde_json::from_value(status).unwrap())
        };
        assert_eq!(said(0), None);
        let (is_ahead, ahead) = said(3_590_040).unwrap();
        assert!(is_ahead);
        assert!(ahead.contains("node 2 is ahead, by 3590.0 s more than"), "{ahead}");
        assert!(ahead.contains("twice real time") && ahead.lines().all(|line| line.len() <= 80));
        let (is_ahead, behind) = said(-1_500).unwrap();
        assert!(!is_ahead);
        assert!(behind.contains("node 2 is 1.5 s behind the epoch"), "{behind}");
    }
}
