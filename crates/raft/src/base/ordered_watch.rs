//! openraft's watch channels: tokio's, and in a simulation channels that wake their receivers in a
//! known order. tokio's channels take the order from random numbers that no seed determines.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use openraft::async_runtime::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync};
use openraft_rt_tokio::{TokioWatch, TokioWatchReceiver, TokioWatchSender};
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

use crate::base::environment::is_simulated;

/// The watch channels of a node.
#[derive(Debug)]
pub struct NodeWatch;

/// A sender. The receivers learn when the last is dropped.
pub enum Sender<T> {
    /// A sender of the system.
    Tokio(TokioWatchSender<T>),
    /// A sender of a simulation.
    Ordered(ChannelHandle<T>),
}

/// A receiver.
pub enum Receiver<T> {
    /// A receiver of the system.
    Tokio(TokioWatchReceiver<T>),
    /// A receiver of a simulation, with the version that it has returned.
    Ordered(ChannelHandle<T>, usize),
}

/// A borrow of the value.
pub enum Ref<'a, T> {
    /// A borrow from a channel of the system.
    Tokio(tokio::sync::watch::Ref<'a, T>),
    /// A borrow from a channel of a simulation.
    Ordered(RwLockReadGuard<'a, T>),
}

struct Channel<T> {
    value: RwLock<T>,
    version: AtomicUsize,
    changed: Notify,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

#[derive(Clone, Copy)]
enum Side {
    Sender,
    Receiver,
}

/// A counted handle of one side of a channel.
pub struct ChannelHandle<T> {
    channel: Arc<Channel<T>>,
    side: Side,
}

impl<T> ChannelHandle<T> {
    fn new(channel: &Arc<Channel<T>>, side: Side) -> Self {
        let handle = Self { channel: Arc::clone(channel), side };
        handle.count().fetch_add(1, SeqCst);
        handle
    }

    fn count(&self) -> &AtomicUsize {
        match self.side {
            Side::Sender => &self.channel.senders,
            Side::Receiver => &self.channel.receivers,
        }
    }

    fn version(&self) -> usize {
        self.channel.version.load(SeqCst)
    }

    fn modify(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let is_modified = modify(&mut self.channel.value.write());
        if is_modified {
            self.channel.version.fetch_add(1, SeqCst);
            self.channel.changed.notify_waiters();
        }
        is_modified
    }
}

impl<T> Clone for ChannelHandle<T> {
    fn clone(&self) -> Self {
        Self::new(&self.channel, self.side)
    }
}

impl<T> Drop for ChannelHandle<T> {
    fn drop(&mut self) {
        let handles = self.count().fetch_sub(1, SeqCst);
        debug_assert!(handles > 0, "each handle of a channel is counted");
        if handles == 1 {
            self.channel.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Tokio(sender) => Self::Tokio(sender.clone()),
            Self::Ordered(handle) => Self::Ordered(handle.clone()),
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Tokio(receiver) => Self::Tokio(receiver.clone()),
            Self::Ordered(handle, seen) => Self::Ordered(handle.clone(), *seen),
        }
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Tokio(value) => value,
            Self::Ordered(value) => value,
        }
    }
}

impl Watch for NodeWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        if !is_simulated() {
            let (sender, receiver) = TokioWatch::channel(init);
            return (Sender::Tokio(sender), Receiver::Tokio(receiver));
        }
        let channel = Arc::new(Channel {
            value: RwLock::new(init),
            version: AtomicUsize::new(0),
            changed: Notify::new(),
            senders: AtomicUsize::new(0),
            receivers: AtomicUsize::new(0),
        });
        let receiver = Receiver::Ordered(ChannelHandle::new(&channel, Side::Receiver), 0);
        (Sender::Ordered(ChannelHandle::new(&channel, Side::Sender)), receiver)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<NodeWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self {
            Self::Tokio(sender) => sender.send(value),
            Self::Ordered(handle) if handle.channel.receivers.load(SeqCst) == 0 => {
                Err(SendError(value))
            }
            Self::Ordered(handle) => {
                handle.modify(|current| {
                    *current = value;
                    true
                });
                Ok(())
            }
        }
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        match self {
            Self::Tokio(sender) => sender.send_if_modified(modify),
            Self::Ordered(handle) => handle.modify(modify),
        }
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        match self {
            Self::Tokio(sender) => Ref::Tokio(sender.borrow_watched()),
            Self::Ordered(handle) => Ref::Ordered(handle.channel.value.read()),
        }
    }

    fn subscribe(&self) -> Receiver<T> {
        match self {
            Self::Tokio(sender) => Receiver::Tokio(sender.subscribe()),
            Self::Ordered(handle) => {
                let receiver = ChannelHandle::new(&handle.channel, Side::Receiver);
                let seen = receiver.version();
                Receiver::Ordered(receiver, seen)
            }
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<NodeWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let (handle, seen) = match self {
            Self::Tokio(receiver) => return receiver.changed().await,
            Self::Ordered(handle, seen) => (handle, seen),
        };
        loop {
            let mut notified = pin!(handle.channel.changed.notified());
            notified.as_mut().enable();
            let version = handle.version();
            if version != *seen {
                *seen = version;
                return Ok(());
            }
            if handle.channel.senders.load(SeqCst) == 0 {
                return Err(RecvError(()));
            }
            notified.await;
        }
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        match self {
            Self::Tokio(receiver) => Ref::Tokio(receiver.borrow_watched()),
            Self::Ordered(handle, _) => Ref::Ordered(handle.channel.value.read()),
        }
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        match self {
            Self::Tokio(receiver) => Ref::Tokio(receiver.borrow_and_update()),
            Self::Ordered(handle, seen) => {
                let value = handle.channel.value.read();
                *seen = handle.channel.version.load(SeqCst);
                Ref::Ordered(value)
            }
        }
    }
}
