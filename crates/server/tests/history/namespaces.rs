//! Three network namespaces of the kernel, which a cable can be pulled out of.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::nodes::NODES;

const CLIENTS: u8 = 201;
const PEERS: u8 = 202;
const PORT: u16 = 7000;

/// Each namespace has one interface for clients and one for the other nodes, at a bridge for each.
pub struct Namespaces {
    /// The prefix of all names: two tests at a time do not meet.
    prefix: String,
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for node in 1..=NODES {
            drop(ip(&["netns", "del", &self.name(node)]));
        }
        for kind in ["c", "p"] {
            drop(ip(&["link", "del", &self.bridge(kind)]));
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let ended = Command::new("ip").args(words).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() { Ok(()) } else { Err(format!("ip {words:?}: {said}")) }
}

fn number(node: u64) -> u8 {
    u8::try_from(node).unwrap()
}

impl Namespaces {
    /// Needs the rights of an administrator.
    pub fn new() -> Result<Self, String> {
        let spaces = Self { prefix: format!("esk{}", std::process::id() % 100_000) };
        for (kind, net) in [("c", CLIENTS), ("p", PEERS)] {
            let bridge = spaces.bridge(kind);
            ip(&["link", "add", &bridge, "type", "bridge"])?;
            ip(&["addr", "add", &format!("10.{net}.0.254/24"), "dev", &bridge])?;
            ip(&["link", "set", &bridge, "up"])?;
        }
        for node in 1..=NODES {
            let space = spaces.name(node);
            ip(&["netns", "add", &space])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            for (kind, net) in [("c", CLIENTS), ("p", PEERS)] {
                let (inside, outside) = (format!("eth{kind}"), spaces.cable(kind, node));
                let pair = ["link", "add", &outside, "type", "veth", "peer", "name", &inside];
                ip(&[&pair[..], &["netns", &space]].concat())?;
                ip(&["link", "set", &outside, "master", &spaces.bridge(kind), "up"])?;
                let address = format!("10.{net}.0.{node}/24");
                ip(&["-n", &space, "addr", "add", &address, "dev", &inside])?;
                ip(&["-n", &space, "link", "set", &inside, "up"])?;
            }
        }
        Ok(spaces)
    }

    pub fn name(&self, node: u64) -> String {
        format!("{}n{node}", self.prefix)
    }

    fn bridge(&self, kind: &str) -> String {
        format!("{}{kind}", self.prefix)
    }

    fn cable(&self, kind: &str, node: u64) -> String {
        format!("{}{kind}{node}", self.prefix)
    }

    pub fn for_clients(node: u64) -> SocketAddr {
        (Ipv4Addr::new(10, CLIENTS, 0, number(node)), PORT).into()
    }

    pub fn for_peers(node: u64) -> SocketAddr {
        (Ipv4Addr::new(10, PEERS, 0, number(node)), PORT).into()
    }

    /// Pulls the cable of this node, and plugs in all others.
    pub fn cut_off(&self, cut: Option<u64>) {
        for node in 1..=NODES {
            let state = if Some(node) == cut { "down" } else { "up" };
            ip(&["link", "set", &self.cable("p", node), state]).unwrap();
        }
    }
}
