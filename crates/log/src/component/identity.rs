//! App metadata of an open log, and the component that it belongs to.

use super::component_log::ComponentLog;
use crate::base::component::Component;
use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::log_error::refuse_if_forked;
use crate::base::operation_errors::OpenError;
use crate::store::app_metadata::{self, APP_METADATA_BYTES_MAX};

impl ComponentLog<'_> {
    /// Replaces the app metadata, durably. A plain log then belongs to this component.
    ///
    /// # Errors
    /// [`Error::ContentTooLarge`] above 64 KiB; [`Error::WrongComponent`] when the log belongs to
    /// another component; [`LogError::Closed`]; [`LogError::Poisoned`] when the log failed before;
    /// [`Error::NoSpace`], after which the old metadata is kept and the log stays usable;
    /// [`LogError::Io`], after which the log is poisoned.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Component, Log};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let queue = Component(*b"MYQUEUE1");
    /// let log = Log::builder(&dir).component(queue).open()?;
    /// log.component().put_app_metadata(queue, b"done through 7")?; // durable
    /// assert_eq!(log.component().app_metadata(queue)?.as_deref(), Some(&b"done through 7"[..]));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn put_app_metadata(self, component: Component, content: &[u8]) -> Result<()> {
        self.set_component(component, component, content)
    }

    /// Gives the log to another component, durably and in one step, with these app metadata.
    /// Prepare a log under a component of its own, and then call this: until it returns, the other
    /// component refuses to open the log.
    ///
    /// # Errors
    /// As [`ComponentLog::put_app_metadata`].
    pub fn set_component(self, from: Component, to: Component, content: &[u8]) -> Result<()> {
        if content.len() > APP_METADATA_BYTES_MAX {
            return Err(Error::ContentTooLarge {
                size: content.len() as u64,
                limit: APP_METADATA_BYTES_MAX as u64,
            });
        }
        let write = &*self.log.write;
        refuse_if_forked()?;
        let _changing = write.change_segments();
        if let Some(terminal) = write.lock().core.terminal() {
            return Err(terminal.refusal().into());
        }
        let expected = Some(from);
        let found = app_metadata::owner(&*write.dir, expected)?;
        if found.is_some() && found != expected {
            return Err(Error::WrongComponent { dir: write.dir.path().into(), found, expected });
        }
        let (bytes, durable) = (content.len() as u64, write.watermark.seq());
        let outcome = app_metadata::write(&*write.dir, to, content)
            .map_err(|error| error.for_want_of_space(write.dir.path(), bytes, durable));
        if let Err(error @ Error::Io(_)) = &outcome {
            write.fail(error.clone());
        }
        outcome
    }

    /// Returns the app metadata of this component; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::WrongComponent`], [`Error::Corrupted`], [`Error::UnsupportedVersion`],
    /// [`LogError::Io`].
    pub fn app_metadata(self, component: Component) -> Result<Option<Vec<u8>>, OpenError> {
        let write = &*self.log.write;
        match app_metadata::read(&*write.dir).map_err(OpenError::narrow)? {
            Some((found, content)) if found == component => Ok(Some(content)),
            Some((found, _)) => Err(OpenError::WrongComponent {
                dir: write.dir.path().into(),
                found: Some(found),
                expected: Some(component),
            }),
            None => Ok(None),
        }
    }
}
