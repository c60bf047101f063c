//! Proxies between the nodes, which can be cut.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The handshake that begins a connection, and where it names the node that opened it.
const HANDSHAKE_BYTES: usize = 48;
const SENDER_BYTES: std::ops::Range<usize> = 28..36;
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Connections between nodes, except those of the node that is cut off.
pub struct Proxies {
    cut_off: watch::Sender<Option<u64>>,
}

impl Proxies {
    pub fn new() -> Self {
        Self { cut_off: watch::Sender::new(None) }
    }

    /// From now on nothing passes from and to this node, and nothing says so to either side.
    pub fn cut_off(&self, node: Option<u64>) {
        self.cut_off.send_replace(node);
    }

    /// Forwards what comes for node `to` to this address.
    pub async fn in_front_of(&self, to: u64, address: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let cut_off = self.cut_off.subscribe();
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let cut_off = cut_off.clone();
                        tokio::spawn(async move {
                            // An end of either side is the end of both.
                            drop(carry(stream, to, address, cut_off).await);
                        });
                    }
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
            }
        });
        own
    }
}

async fn carry(
    mut peer: TcpStream,
    to: u64,
    address: SocketAddr,
    mut cut_off: watch::Receiver<Option<u64>>,
) -> std::io::Result<()> {
    let mut handshake = [0; HANDSHAKE_BYTES];
    peer.read_exact(&mut handshake).await?;
    let from = u64::from_le_bytes(handshake[SENDER_BYTES].try_into().unwrap());
    let is_cut = |node: &Option<u64>| node.is_some_and(|node| node == from || node == to);
    let mut ends = cut_off.clone();
    drop(cut_off.wait_for(|node| !is_cut(node)).await);
    let mut node = TcpStream::connect(address).await?;
    peer.set_nodelay(true)?;
    node.set_nodelay(true)?;
    node.write_all(&handshake).await?;
    tokio::select! {
        copied = copy_bidirectional(&mut peer, &mut node) => drop(copied?),
        () = async { drop(cut_off.wait_for(is_cut).await) } => {}
    }
    // What was cut has lost bytes: it stays silent as long as the network is cut, and then ends.
    drop(ends.wait_for(|node| !is_cut(node)).await);
    Ok(())
}
