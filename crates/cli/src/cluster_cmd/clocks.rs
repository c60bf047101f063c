//! The wall clocks of the nodes that vote, next to one another.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_client::NodeCaller;
use esker_server::{ClockStatus, MemberInfo, Members};
use tokio::task::JoinSet;

const CLOCK_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Clocks that are further apart than this, and than asking took, disagree.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);

/// The clock of a node, compared with the clock here.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    node: u64,
    leads: bool,
    /// Nanoseconds by which it was ahead of the clock here, and how exact that is.
    ahead: i128,
    within: Duration,
}

/// Describes the difference, if the leader's clock differs from those of most other voters that
/// answer.
pub async fn disagreement(caller: &NodeCaller, members: &Members) -> Option<String> {
    let mut asked = JoinSet::new();
    for member in members.members.clone().into_iter().filter(|member| member.voter) {
        let caller = caller.clone();
        asked.spawn(async move { read_clock(&caller, &member).await });
    }
    let all: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    compare(&all)
}

async fn read_clock(caller: &NodeCaller, member: &MemberInfo) -> Option<ClockReading> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin = now();
    let answer = caller.get(&member.addr, "/clock", CLOCK_CALL_TIMEOUT).await.ok()?;
    let within = now().saturating_sub(begin);
    let ClockStatus { node, leads, clock_ns, .. } = serde_json::from_slice(&answer.body).ok()?;
    let here = begin + within / 2;
    let ahead = i128::from(clock_ns) - here.as_nanos().cast_signed();
    (node == member.node).then_some(ClockReading { node, leads, ahead, within })
}

fn compare(all: &[ClockReading]) -> Option<String> {
    let leader = all.iter().find(|shown| shown.leads)?;
    let others: Vec<_> = all.iter().filter(|shown| shown.node != leader.node).collect();
    let mut apart: Vec<i128> = others
        .iter()
        .map(|other| {
            (leader.ahead - other.ahead, CLOCK_DIFFERENCE_MAX + leader.within + other.within)
        })
        .filter(|(apart, most)| apart.unsigned_abs() > most.as_nanos())
        .map(|(apart, _)| apart)
        .collect();
    apart.sort_unstable();
    let median = *apart.get(apart.len() / 2)?;
    (apart.len() * 2 > others.len()).then(|| {
        format!(
            "the clock of node {}, which leads, is {:.1} s {} of most other voters; set it right, \
             or transfer leadership",
            leader.node,
            median.unsigned_abs() as f64 / 1e9,
            if median > 0 { "ahead of those" } else { "behind those" },
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn clocks(ahead_ms: &[i128]) -> Vec<ClockReading> {
        let shown = |(n, ms): (usize, &i128)| ClockReading {
            node: n as u64 + 1,
            leads: n == 0,
            ahead: ms * 1_000_000,
            within: Duration::from_millis(10),
        };
        ahead_ms.iter().enumerate().map(shown).collect()
    }

    #[test]
    fn the_leaders_clock_counts_if_most_others_show_the_same() {
        for agree in [&[7][..], &[0, 900, 900], &[0, 1_010, 0], &[60_000, 59_500, 0], &[0, 9, -9]] {
            assert_eq!(compare(&clocks(agree)), None, "{agree:?}");
        }
        assert_eq!(compare(&[]), None);
        let ahead = compare(&clocks(&[60_000, 0, 1])).unwrap();
        assert!(ahead.contains("node 1, which leads, is 60.0 s ahead of those of"), "{ahead}");
        let behind = compare(&clocks(&[0, 3_000, 5_000, 100, 3_000])).unwrap();
        assert!(behind.contains("is 3.0 s behind those of"), "{behind}");
        assert!(compare(&clocks(&[2_000, 0])).is_some());
    }
}
