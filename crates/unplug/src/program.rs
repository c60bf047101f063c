//! Runs the program on the recording mount.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::fault::FaultInjector;
use crate::folders::Folders;
use crate::mount::recording_mount::RecordingMount;
use crate::process_tree::ProcessTree;
use crate::record::recording::Recording;

/// How long a server may take to end after SIGTERM.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may go on when its server has ended: it may be the client that stopped it.
const CLIENT_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A program to record, and what runs before it and beside it.
#[derive(Debug)]
pub struct Program {
    /// A shell command whose effects count as durable.
    pub setup: Option<String>,
    pub arguments: Vec<OsString>,
    /// A shell command that is the client of the program; its output counts instead.
    pub drive: Option<String>,
    pub faults: FaultInjector,
    /// The beginning of each line of output that says that all before is durable.
    pub durable_at: Option<String>,
}

/// A recording, and how the program ended.
#[derive(Debug)]
pub struct RecordedRun {
    pub recording: Recording,
    /// The status of the program, or of its client where it has one.
    pub status: ExitStatus,
    /// Sentences for the user.
    pub notes: Vec<String>,
    /// The faults that the program never met, a sentence each.
    pub missed_faults: Vec<String>,
}

impl Program {
    /// Runs the setup and the program in a recorded directory.
    pub fn run(mut self, folders: &Folders) -> Result<RecordedRun> {
        let mount = RecordingMount::new(&folders.recorded, &folders.socket)?;
        if let Some(setup) = &self.setup {
            let setup = ProcessTree::start(mount.shell_command(setup))?;
            setup.wait(None)?;
            let status = setup.end()?;
            if !status.success() {
                // Where the recording had to end, that is the reason.
                mount.finish(false)?;
                bail!("the setup failed: {status}");
            }
        }
        mount.recorder().end_setup();
        mount.inject(std::mem::take(&mut self.faults));
        let mut notes = Vec::new();
        let (status, success) = match &self.drive {
            None => {
                let status = self.run_alone(&mount)?;
                (status, status.success())
            }
            // Its success is recorded already.
            Some(client) => (self.run_driven(&mount, client, &mut notes)?, false),
        };
        let missed_faults = mount.faults().missed();
        Ok(RecordedRun { recording: mount.finish(success)?, status, notes, missed_faults })
    }

    fn run_alone(&self, mount: &RecordingMount) -> Result<ExitStatus> {
        let (writer, output) = mount.output_pipe(self.durable_at.as_deref())?;
        let program = self.start(mount, writer.into())?;
        record_output(mount, &output, &program, None)?;
        program.end()
    }

    /// Runs the program as a server until its client ends.
    fn run_driven(
        &self,
        mount: &RecordingMount,
        client: &str,
        notes: &mut Vec<String>,
    ) -> Result<ExitStatus> {
        let errors = io::stderr().as_fd().try_clone_to_owned();
        let server = self.start(mount, errors.context("standard error")?.into())?;
        let (writer, output) = mount.output_pipe(self.durable_at.as_deref())?;
        let mut command = mount.shell_command(client);
        command.stdout(writer);
        let client = ProcessTree::start(command)?;
        record_output(mount, &output, &client, Some(&server))?;
        let status = client.end()?;
        if status.success() {
            // Before the requests of the server's end: no acknowledgement follows these.
            mount.recorder().record_success();
        }
        if server.wait(Some(Duration::ZERO))? {
            notes.push("the program ended before its client".to_owned());
        }
        server.terminate()?;
        if !server.wait(Some(SERVER_STOP_TIMEOUT))? {
            let seconds = SERVER_STOP_TIMEOUT.as_secs();
            notes.push(format!("the program was killed: SIGTERM did not end it in {seconds} s"));
        }
        server.end()?;
        Ok(status)
    }

    fn start(&self, mount: &RecordingMount, output: Stdio) -> Result<ProcessTree> {
        let (program, arguments) = self.arguments.split_first().context("there is no program")?;
        let mut command = mount.command(&absolute(program)?);
        command.args(arguments).stdout(output);
        ProcessTree::start(command)
    }
}

/// Records output as it comes, so that a program that prints much and changes nothing does not wait
/// for ever. Returns when the program has ended, or soon after its server.
fn record_output(
    mount: &RecordingMount,
    output: &OwnedFd,
    program: &ProcessTree,
    server: Option<&ProcessTree>,
) -> Result<()> {
    let mut open = true;
    let mut deadline: Option<Instant> = None;
    loop {
        let server = server.filter(|_| deadline.is_none());
        let output = Some(output).filter(|_| open);
        let mut events = vec![PollFd::new(program, PollFlags::IN)];
        events.extend(server.map(|server| PollFd::new(server, PollFlags::IN)));
        events.extend(output.map(|output| PollFd::new(output, PollFlags::IN)));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().context("the time is too long")?;
        let ready = retry_on_intr(|| poll(&mut events, left.as_ref()));
        let ready = ready.context("failed to wait for the program")?;
        let ended = !events[0].revents().is_empty();
        let server_ended = server.is_some() && !events[1].revents().is_empty();
        open = open && mount.recorder().drain_output();
        if ended || ready == 0 {
            return Ok(());
        }
        if server_ended {
            deadline = Some(Instant::now() + CLIENT_STOP_TIMEOUT);
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
