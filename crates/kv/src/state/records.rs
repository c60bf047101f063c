//! The log that holds the records of a store: open in this process, or only for reading.

use esker_log::component::{CheckpointReader, RecordPlace};
use esker_log::{Error, Log, LogStream, Payload, ReadOnlyLog, Seq, Start};

use crate::state::log_follower::LogFollower;

/// The log of a store.
#[derive(Debug)]
pub(crate) enum Records {
    /// The log that this process writes.
    Log(Log),
    /// A log that another process may write, and the progress along it.
    ReadOnly(ReadOnlyLog, LogFollower),
}

impl Records {
    pub(crate) fn read_placed(&self, place: RecordPlace) -> Result<Payload, Error> {
        Ok(match self {
            Self::Log(log) => log.component().read_placed(place)?,
            Self::ReadOnly(log, _) => log.component().read_placed(place)?,
        })
    }

    pub(crate) fn read_placed_many(
        &self,
        places: &[RecordPlace],
    ) -> Result<Vec<Option<Payload>>, Error> {
        Ok(match self {
            Self::Log(log) => log.component().read_placed_many(places)?,
            Self::ReadOnly(log, _) => log.component().read_placed_many(places)?,
        })
    }

    pub(crate) fn stream(&self, start: Start) -> Result<LogStream, Error> {
        Ok(match self {
            Self::Log(log) => log.stream(start)?,
            Self::ReadOnly(log, _) => log.stream(start)?,
        })
    }

    pub(crate) fn oldest(&self) -> Seq {
        match self {
            Self::Log(log) => log.oldest(),
            Self::ReadOnly(log, _) => log.oldest(),
        }
    }

    /// Polls how far the log is durable, where another process writes it.
    pub(crate) fn refresh(&self) -> Result<(), Error> {
        match self {
            Self::Log(_) => Ok(()),
            Self::ReadOnly(log, _) => Ok(log.refresh()?),
        }
    }

    /// The last record that opening applies.
    pub(crate) fn end(&self) -> Seq {
        match self {
            Self::Log(log) => log.accepted(),
            Self::ReadOnly(log, _) => log.durable(),
        }
    }

    pub(crate) fn was_repaired(&self) -> Result<bool, Error> {
        Ok(match self {
            Self::Log(log) => log.storage().was_repaired()?,
            Self::ReadOnly(log, _) => log.storage().was_repaired()?,
        })
    }

    pub(crate) fn checkpoint_reader(&self) -> Result<Option<CheckpointReader>, Error> {
        Ok(match self {
            Self::Log(log) => log.component().checkpoint_reader()?,
            Self::ReadOnly(log, _) => log.component().checkpoint_reader()?,
        })
    }

    /// Removes the checkpoint, unless another process may use it.
    pub(crate) fn discard_checkpoint(&self) -> Result<(), Error> {
        match self {
            Self::Log(log) => Ok(log.component().discard_checkpoint()?),
            Self::ReadOnly(..) => Ok(()),
        }
    }
}
