//! A directory that records what is done to it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::mount::{UnmountFlags, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getegid, geteuid};

use super::filesystem::RecordedFs;
use super::recorder::Recorder;
use super::tree::Access;
use crate::cut_socket;
use crate::fault::FaultInjector;
use crate::record::recording::Recording;

pub struct RecordingMount {
    recorder: Arc<Mutex<Recorder>>,
    faults: Arc<Mutex<FaultInjector>>,
    session: BackgroundSession,
    dir: PathBuf,
    /// The path of the socket of `unplug cut`, where there is one.
    socket: Option<PathBuf>,
}

impl RecordingMount {
    /// Mounts on an empty directory, and listens at `socket` where that path is not too long.
    pub fn new(dir: &Path, socket: &Path) -> Result<Self> {
        let access = Access { mode: 0o755, uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let recorder = Arc::new(Mutex::new(Recorder::new(access)));
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.mount_options = vec![
            MountOption::FSName("unplug".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        let faults = Arc::new(Mutex::default());
        let file_system = RecordedFs::new(Arc::clone(&recorder), Arc::clone(&faults));
        let session = Session::new(file_system, dir, &config).and_then(Session::spawn);
        let session = session.context(
            "failed to mount through /dev/fuse. The module fuse must be loaded and /dev/fuse must \
             be there and open to this user; a container needs --device /dev/fuse --cap-add \
             SYS_ADMIN",
        )?;
        let marked = Arc::downgrade(&recorder);
        let listening = cut_socket::listen(socket, move |name| {
            let Some(recorder) = marked.upgrade() else { return false };
            recorder.lock().unwrap_or_else(PoisonError::into_inner).record_mark(name);
            true
        });
        let socket = listening.ok().map(|()| socket.to_owned());
        Ok(Self { recorder, faults, session, dir: dir.to_owned(), socket })
    }

    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn faults(&self) -> MutexGuard<'_, FaultInjector> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Injects faults from now on.
    pub fn inject(&self, faults: FaultInjector) {
        faults.sentences().into_iter().for_each(|fault| self.recorder().record_fault(fault));
        *self.faults() = faults;
    }

    /// A command that starts in the recorded directory.
    pub fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("UNPLUG_DIR", &self.dir).stdin(Stdio::null());
        match &self.socket {
            Some(socket) => command.env(cut_socket::VARIABLE, socket),
            None => command.env_remove(cut_socket::VARIABLE),
        };
        command
    }

    pub fn shell_command(&self, line: &str) -> Command {
        let mut command = self.command("sh".as_ref());
        command.args(["-c", line]);
        command
    }

    /// A pipe whose bytes are recorded as output: the end to write to, and one to poll.
    pub fn output_pipe(&self, durable_at: Option<&str>) -> Result<(OwnedFd, OwnedFd)> {
        let pipe = || {
            let (output, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&output, true)?;
            let watched = output.as_fd().try_clone_to_owned()?;
            self.recorder().attach_output(output, durable_at);
            std::io::Result::Ok((writer, watched))
        };
        pipe().context("failed to make a pipe")
    }

    /// Unmounts the directory. `success` is whether the program said at its end that all is well.
    ///
    /// # Errors
    /// When the recording had to end before the program, or the directory is not unmounted.
    pub fn finish(self, success: bool) -> Result<Recording> {
        let recording = self.recorder().finish(success);
        unmount(&self.dir, UnmountFlags::DETACH)
            .context("failed to unmount the recorded directory")?;
        drop(self.session);
        recording.context("failed to record the program")
    }
}
