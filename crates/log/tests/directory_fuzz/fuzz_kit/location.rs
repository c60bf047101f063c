//! Where a corrupted directory is put: a simulated disk, or a real one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, StdDisk};
use esker_log::{Engine, OnCorruption, OpenCheck, Options};
use esker_testkit::{Files, export, read_files, store};

use super::DIR;
use super::build::Sample;
use super::program::Config;

/// A copy of the corrupted directory.
pub struct Location {
    disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    config: Config,
    sim: Option<SimDisk>,
    /// Goes with the place.
    _dir: Option<tempfile::TempDir>,
}

impl Location {
    pub fn new(sample: &Sample, damaged: &Files, real: bool) -> Result<Self, String> {
        let config = sample.config.clone();
        if real {
            let root = tempfile::tempdir().map_err(|error| error.to_string())?;
            let dir = root.path().join("log");
            export(damaged, &dir).map_err(|error| error.to_string())?;
            let disk = Arc::new(StdDisk::new());
            return Ok(Self { disk, dir, config, sim: None, _dir: Some(root) });
        }
        let sim = sample.disk.fork(1);
        let stored = store(&sim, Path::new(DIR), &sample.source.files, damaged);
        stored.map_err(|error| format!("storing the damage: {error}"))?;
        let disk = Arc::new(sim.clone());
        Ok(Self { disk, dir: DIR.into(), config, sim: Some(sim), _dir: None })
    }

    /// The files that are there now, on a simulated disk.
    pub fn files(&self) -> Option<Files> {
        read_files(self.sim.as_ref()?, &self.dir).ok()
    }

    pub fn options(&self, engine: &Engine) -> Options {
        let mut options = Options::on(Arc::clone(&self.disk));
        self.config.apply(&mut options);
        // What reading finds must not depend on when retention looks.
        options.retention = esker_log::Retention::NONE;
        options.engine = Some(engine.clone());
        options.check = OpenCheck::Full;
        options.on_corruption = OnCorruption::Fail;
        options
    }
}
