//! Runs the program on the recording mount.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::mount::{UnmountFlags, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getegid, geteuid};

use crate::mount::filesystem::RecordedFs;
use crate::mount::recorder::Recorder;
use crate::mount::tree::Access;
use crate::process_tree::ProcessTree;
use crate::record::recording::Recording;

/// A program to record, and the setup that runs before it.
#[derive(Clone, Debug)]
pub struct Program {
    /// A shell command whose effects count as durable.
    pub setup: Option<String>,
    pub arguments: Vec<OsString>,
}

/// A recording, and how the program ended.
#[derive(Debug)]
pub struct RecordedRun {
    pub recording: Recording,
    pub status: ExitStatus,
}

/// A directory that records what is done to it.
struct RecordingMount {
    recorder: Arc<Mutex<Recorder>>,
    session: BackgroundSession,
    dir: PathBuf,
}

impl Program {
    /// Runs the setup and the program in a recorded directory, mounted on the empty `dir`.
    pub fn run(&self, dir: &Path) -> Result<RecordedRun> {
        let mount = RecordingMount::new(dir)?;
        if let Some(setup) = &self.setup {
            let mut command = mount.command("sh".as_ref());
            command.args(["-c", setup]);
            let setup = ProcessTree::start(command)?;
            setup.wait(None)?;
            let status = setup.end()?;
            if !status.success() {
                bail!("the setup failed: {status}");
            }
        }
        mount.recorder().end_setup();
        let status = mount.run(&self.arguments)?;
        let recording = mount.recorder().finish(status.success());
        unmount(dir, UnmountFlags::DETACH).context("failed to unmount the recorded directory")?;
        drop(mount.session);
        Ok(RecordedRun { recording, status })
    }
}

impl RecordingMount {
    fn new(dir: &Path) -> Result<Self> {
        let access = Access { mode: 0o755, uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let recorder = Arc::new(Mutex::new(Recorder::new(access)));
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.mount_options = vec![
            MountOption::FSName("unplug".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        let file_system = RecordedFs::new(Arc::clone(&recorder));
        let session = Session::new(file_system, dir, &config).and_then(Session::spawn);
        let session = session.context(
            "failed to mount through /dev/fuse. The module fuse must be loaded and /dev/fuse must \
             be there and open to this user; a container needs --device /dev/fuse --cap-add \
             SYS_ADMIN",
        )?;
        Ok(Self { recorder, session, dir: dir.to_owned() })
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command that starts in the recorded directory.
    fn command(&self, program: &std::ffi::OsStr) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("UNPLUG_DIR", &self.dir).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[OsString]) -> Result<ExitStatus> {
        let (program, arguments) = arguments.split_first().context("there is no program")?;
        let program = absolute(program)?;
        let (output, writer) = pipe_with(PipeFlags::CLOEXEC).context("failed to make a pipe")?;
        rustix::io::ioctl_fionbio(&output, true).context("failed to set up a pipe")?;
        let watched = output.try_clone().context("failed to set up a pipe")?;
        self.recorder().attach_output(output);
        let mut command = self.command(&program);
        command.args(arguments).stdout(writer);
        let program = ProcessTree::start(command)?;
        self.record_output(&watched, &program)?;
        program.end()
    }

    /// Records output as it comes, so that a program that prints much and changes nothing does not
    /// wait for ever. Returns when the program has ended.
    fn record_output(&self, output: &OwnedFd, program: &ProcessTree) -> Result<()> {
        let mut open = true;
        loop {
            let mut events =
                vec![PollFd::new(program, PollFlags::IN), PollFd::new(output, PollFlags::IN)];
            events.truncate(if open { 2 } else { 1 });
            retry_on_intr(|| poll(&mut events, None)).context("failed to wait for the program")?;
            let ended = !events[0].revents().is_empty();
            open = open && self.recorder().drain_output();
            if ended {
                return Ok(());
            }
        }
    }
}

/// The program's path, which a change of the directory must not change. A symbolic link stays: its
/// name may select what the program does.
fn absolute(program: &OsString) -> Result<OsString> {
    if !program.as_encoded_bytes().contains(&b'/') {
        return Ok(program.clone());
    }
    let path = std::path::absolute(program).with_context(|| format!("{}", program.display()))?;
    Ok(path.into_os_string())
}
