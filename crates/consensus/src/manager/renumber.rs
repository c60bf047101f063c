//! Making the logs of a backup ordinary ones, once their node has a new number.
//!
//! The registry comes last: while it is that of a backup, a log may be one, and no key is added.

use std::sync::Arc;

use esker_log::ReadOptions;

use crate::component::COPY_COMPONENT;
use crate::errors::manager_errors::OpenError;
use crate::manager::directory_names::directory_of;
use crate::manager::open_manager::ManagerInner;

impl ManagerInner {
    pub(super) fn renumber(&self) -> Result<(), OpenError> {
        let read = ReadOptions::on(Arc::new(self.disk.clone()));
        for key in self.registry.keys()? {
            let name = directory_of(&key);
            // One that is missing, or has a corrupt file `note`, is an error at its next use.
            if !matches!(
                esker_log::component::identify(&name, read.clone()),
                Ok(Some(COPY_COMPONENT))
            ) {
                continue;
            }
            let mut options = self.options.clone();
            options.label = key.to_vec();
            options.log.must_exist = true;
            self.builder_of(&key, &options).renumber().open()?.close()?;
        }
        Ok(self.registry.renumber()?)
    }
}
