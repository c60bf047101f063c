//! The way to a node, which can be cut for one caller or for all: what is sent is then held up, as
//! by a network that drops packets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes of a handshake, where it says what the connection is for, and where it names the caller.
const HANDSHAKE_BYTES: usize = 48;
const PURPOSE_OFFSET: usize = 10;
const FROM_OFFSET: usize = 28;
/// The purpose of a connection for proofs of leadership.
const PROOFS_PURPOSE: u8 = 8;
/// Added to the number of a caller whose connection is for proofs, so that it is cut by itself.
pub const PROOF_PAIRS: u64 = 100;

/// Added to the second number of a pair, so that only long messages are held up: entries, and no
/// heartbeat.
pub const LONG_MESSAGE_PAIRS: u64 = 100;
/// The least bytes of a long message.
const LONG_MESSAGE_BYTES: usize = 1000;

/// Added to the number of a caller, so that it gets no answers, and its requests are not held up.
pub const ANSWER_PAIRS: u64 = 200;

/// Pairs of nodes of which the first does not reach the second, nor is answered.
pub type Cuts = watch::Receiver<BTreeSet<(u64, u64)>>;

pub struct Proxy {
    pub address: SocketAddr,
    node: Arc<Mutex<Option<SocketAddr>>>,
}

impl Proxy {
    pub async fn new(to: u64, cuts: Cuts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let node: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let upstream = Arc::clone(&node);
        tokio::spawn(async move {
            loop {
                let (caller, _) = listener.accept().await.unwrap();
                let (upstream, cuts) = (Arc::clone(&upstream), cuts.clone());
                tokio::spawn(async move {
                    let address = *upstream.lock().unwrap();
                    if let Some(address) = address {
                        drop(connect(caller, address, to, cuts).await);
                    }
                });
            }
        });
        Self { address, node }
    }

    /// The address of the node; `None` while it is down.
    pub fn leads_to(&self, node: Option<SocketAddr>) {
        *self.node.lock().unwrap() = node;
    }
}

async fn connect(
    mut caller: TcpStream,
    node: SocketAddr,
    to: u64,
    cuts: Cuts,
) -> std::io::Result<()> {
    let mut handshake = [0; HANDSHAKE_BYTES];
    caller.read_exact(&mut handshake).await?;
    let from = u64::from_le_bytes(handshake[FROM_OFFSET..FROM_OFFSET + 8].try_into().unwrap());
    let from = if handshake[PURPOSE_OFFSET] == PROOFS_PURPOSE { from + PROOF_PAIRS } else { from };
    let mut node = TcpStream::connect(node).await?;
    for stream in [&caller, &node] {
        stream.set_nodelay(true)?;
    }
    wait(&cuts, (from, to)).await;
    node.write_all(&handshake).await?;
    let (from_caller, to_caller) = caller.split();
    let (from_node, to_node) = node.split();
    let (asking, answering) = ([(from, to)], [(from, to), (from + ANSWER_PAIRS, to)]);
    tokio::select! {
        copied = relay(from_caller, to_node, &asking, &cuts) => copied,
        copied = relay(from_node, to_caller, &answering, &cuts) => copied,
    }
}

async fn relay(
    mut source: impl AsyncRead + Unpin,
    mut target: impl AsyncWrite + Unpin,
    pairs: &[(u64, u64)],
    cuts: &Cuts,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let len = source.read(&mut bytes).await?;
        if len == 0 {
            return Ok(());
        }
        for (from, to) in pairs {
            wait(cuts, (*from, *to)).await;
            if len >= LONG_MESSAGE_BYTES {
                wait(cuts, (*from, *to + LONG_MESSAGE_PAIRS)).await;
            }
        }
        target.write_all(&bytes[..len]).await?;
    }
}

/// Waits while the pair is cut off.
async fn wait(cuts: &Cuts, pair: (u64, u64)) {
    drop(cuts.clone().wait_for(|cuts| !cuts.contains(&pair)).await);
}
