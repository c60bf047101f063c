//! The members of the cluster: the answer of `GET /members`.

use serde_json::Value;

use crate::address::Address;

/// The most members that are kept.
const MEMBERS_MAX: usize = 64;

/// The members of a cluster, as one of its nodes knows them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// The id of the cluster; empty if the node does not know it yet.
    pub(crate) cluster: String,
    pub(crate) leader: Option<Address>,
    pub(crate) all: Vec<Address>,
}

impl Members {
    /// Parses a list of members. Members without a usable address are left out.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let address = |node: &Value| Address::from_node(node["addr"].as_str()?);
        let members = value["members"].as_array()?;
        let parsed = Self {
            cluster: value["cluster"].as_str().unwrap_or_default().to_owned(),
            leader: address(&value["leader"]),
            all: members.iter().take(MEMBERS_MAX).filter_map(address).collect(),
        };
        debug_assert!(parsed.all.len() <= MEMBERS_MAX, "members are bounded");
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_a_node_answers_is_read() {
        let body = r#"{"leader":{"nodeID":1,"addr":"a:1"},"members":[{"nodeID":1,"addr":"a:1"},
            {"nodeID":2,"addr":"b:2","voter":true},{"nodeID":3,"addr":"http://c"},{}],"cluster":"07"}"#;
        let members = Members::parse(body.as_bytes()).unwrap();
        let address = |text| Address::from_node(text).unwrap();
        assert_eq!(members.cluster, "07");
        assert_eq!(members.leader, Some(address("a:1")));
        assert_eq!(members.all, [address("a:1"), address("b:2")]);
        let none = Members::parse(br#"{"leader":null,"members":[]}"#);
        assert_eq!(none, Some(Members::default()));
    }

    #[test]
    fn what_is_no_list_of_members_is_refused() {
        for wrong in ["", "[]", "{}", "{\"members\":7}", "ok", "{\"members\":["] {
            assert_eq!(Members::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let many = vec![r#"{"addr":"a:1"}"#; 1000].join(",");
        let many = Members::parse(format!("{{\"members\":[{many}]}}").as_bytes()).unwrap();
        assert_eq!(many.all.len(), MEMBERS_MAX);
    }
}
