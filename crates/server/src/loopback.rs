//! Detection of members that other hosts cannot reach, because they advertise a loopback address.

use crate::call::{MEMBER_CALL_TIMEOUT, ask_as};
use crate::error::ServerError;
use crate::port::{host, is_loopback};
use crate::protocol::Members;
use crate::security::Caller;

/// Refuses to join a cluster with a member on another host that advertises a loopback address to
/// the other nodes: this node, at these addresses, would become a voter that never reaches it.
pub(crate) async fn check_members(
    caller: &Caller,
    member: &str,
    client: &str,
    raft: &str,
) -> Result<(), ServerError> {
    let refused = |why: String| ServerError::Join(why);
    let answer = ask_as(caller, member, "/members", None, MEMBER_CALL_TIMEOUT).await;
    let answer = answer.map_err(|error| refused(error.to_string()))?;
    let members: Members = serde_json::from_slice(&answer.body)
        .map_err(|_| refused(format!("{member} names no members")))?;
    describe_unreachable(&members, client, raft).map_or(Ok(()), |why| Err(refused(why)))
}

/// Describes the first member that this node could not reach; `None` if it could reach all.
fn describe_unreachable(members: &Members, client: &str, raft: &str) -> Option<String> {
    // Where all nodes are on one host, loopback is enough.
    if is_loopback(raft) {
        return None;
    }
    let is_remote = |addr: &str| !is_loopback(addr) && host(addr) != host(client);
    let unreachable = members
        .members
        .iter()
        .find(|other| other.voter && is_loopback(&other.raft) && is_remote(&other.addr))?;
    let (node, addr, at) = (unreachable.node, &unreachable.addr, &unreachable.raft);
    Some(format!(
        "node {node} at {addr} is on another host, and gives the other nodes {at}, which no other \
         host reaches: start it with --raft-listen, or --raft-advertise"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MemberInfo;

    fn why(addr: &str, raft_addr: &str, client: &str, raft: &str) -> Option<String> {
        let (addr, raft_addr) = (addr.to_owned(), raft_addr.to_owned());
        let named = MemberInfo { node: 1, addr, raft: raft_addr, voter: true };
        let members =
            Members { leader: None, members: vec![named], cluster: String::new(), changing: false };
        describe_unreachable(&members, client, raft)
    }

    /// A founder whose port for other nodes was on loopback got voters that never reached it.
    #[test]
    fn a_member_on_another_host_needs_an_address_that_is_not_loopback() {
        let (other, own) = ("10.77.0.1:8080", "10.77.0.2:8080");
        for raft in ["127.0.0.1:8081", "localhost:8081", "[::1]:8081", "[::ffff:127.0.0.1]:8081"] {
            let found = why(other, raft, own, "10.77.0.2:8081");
            assert!(found.is_some_and(|why| why.contains(raft) && why.contains("--raft-listen")));
        }
        assert_eq!(why(other, "10.77.0.1:8081", own, "10.77.0.2:8081"), None);
        // One host, by the address of either.
        assert_eq!(why("127.0.0.1:8080", "127.0.0.1:8081", own, "10.77.0.2:8081"), None);
        assert_eq!(why(own, "127.0.0.1:8081", own, "10.77.0.2:8091"), None);
        assert_eq!(why(other, "127.0.0.1:8081", own, "127.0.0.1:8091"), None);
    }
}
