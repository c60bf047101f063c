//! Checking the records of a store that may be open elsewhere.

use esker_log::{ReadOnlyLog, Start};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::ReadError;
use crate::base::options::COMPONENT;
use crate::record::Record;

/// Reads every durable record of a store's log and checks that it is one of a store. Returns their
/// number. Takes no lock, and changes nothing. Records that were quarantined are passed over:
/// [`esker_log::verify`] reports those.
///
/// # Errors
/// [`ReadError`]: [`ReadError::Trimmed`] where the writer dropped records before they were read,
/// and [`ReadError::Store`].
pub fn check_records(log: &ReadOnlyLog) -> Result<u64, ReadError> {
    log.component().expect(COMPONENT)?;
    let mut stream = log.stream(Start::Oldest)?;
    let mut count = 0;
    loop {
        match stream.try_next() {
            Ok(None) => return Ok(count),
            Ok(Some(batch)) => {
                for record in &batch {
                    let invalid = |what| CorruptedRecord { seq: record.seq, what };
                    Record::decode(record.payload).map_err(invalid)?;
                    count += 1;
                }
            }
            Err(esker_log::ReadError::Quarantined(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
