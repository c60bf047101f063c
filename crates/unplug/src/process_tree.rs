//! A process with all that it starts, in a PID namespace of its own: nothing of it outlives its
//! end, not even a process in another session.

// A PID namespace ends with its first process, which must be neither the program nor a shell: the
// kernel ignores the signals that a first process does not handle. The first process here stays
// between fork and exec, so it makes system calls only.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The most descriptors that a kernel without `close_range` closes.
const DESCRIPTORS_MAX: libc::c_int = 4096;

pub struct ProcessTree {
    first: OwnedFd,
    /// Waits for the first process. `None` after the end.
    thread: Option<JoinHandle<io::Result<ExitStatus>>>,
}

impl ProcessTree {
    /// Starts a command. All of the tree ends when the command ends, when it is dropped, and when
    /// this process is killed.
    pub fn start(command: Command) -> Result<Self> {
        let (sender, started) = sync_channel(1);
        // A thread whose children are in another PID namespace can start no thread.
        let thread = std::thread::spawn(move || start_and_wait(command, &sender));
        let first = started.recv().context("the thread of a process ended early")??;
        Ok(Self { first, thread: Some(thread) })
    }

    /// Waits until all has ended; `false` when that takes longer than `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let timeout =
            timeout.map(Timespec::try_from).transpose().context("the time is too long")?;
        let mut ended = [PollFd::new(&self.first, PollFlags::IN)];
        let events = retry_on_intr(|| poll(&mut ended, timeout.as_ref()));
        Ok(events.context("failed to wait for a process")? > 0)
    }

    /// Sends SIGTERM to the process of the command.
    pub fn terminate(&self) -> Result<()> {
        match pidfd_send_signal(&self.first, Signal::TERM) {
            // It ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("failed to send SIGTERM"),
        }
    }

    /// Kills what has not ended; returns the status of the command. That of a command that a
    /// signal ended is 128 and the number of the signal, as in a shell.
    pub fn end(mut self) -> Result<ExitStatus> {
        self.kill().context("failed to wait for a process")?.context("the process ended before")
    }

    fn kill(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(thread) = self.thread.take() else { return Ok(None) };
        // Fails when it has ended.
        let _ = pidfd_send_signal(&self.first, Signal::KILL);
        let status = thread.join().map_err(|_| io::Error::other("its thread panicked"))?;
        status.map(Some)
    }
}

/// Readable when all has ended.
impl AsFd for ProcessTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn start_and_wait(
    mut command: Command,
    started: &SyncSender<Result<OwnedFd>>,
) -> io::Result<ExitStatus> {
    let spawned = spawn(&mut command).and_then(|child| {
        let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        Ok((child, descriptor.context("failed to watch a process")?))
    });
    // Its descriptors must be the program's alone, or the end of a pipe is never seen.
    let program = command.get_program().to_owned();
    drop(command);
    match spawned {
        Ok((mut child, descriptor)) => {
            let _ = started.send(Ok(descriptor));
            child.wait()
        }
        Err(error) => {
            let _ = started.send(Err(error.context(anyhow!("failed to start {program:?}"))));
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    // SAFETY: the flag does not separate the table of file descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.context("a PID namespace is refused")?;
    // SAFETY: the closure makes system calls, and allocates nothing between fork and exec.
    unsafe { command.pre_exec(fork_from_first_process) };
    Ok(command.spawn()?)
}

/// Forks again, in the first process of a PID namespace. Returns in the new process; the first one
/// ends, with its status, when the new one has ended.
fn fork_from_first_process() -> io::Result<()> {
    // So that a killed tool leaves nothing behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    mount_proc();
    // SAFETY: the pointers are those of local variables, and `sigemptyset` initializes the set.
    unsafe {
        let mut handled = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(handled.as_mut_ptr());
        let mut handled = handled.assume_init();
        libc::sigaddset(&raw mut handled, libc::SIGTERM);
        libc::sigaddset(&raw mut handled, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const handled, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::sigprocmask(libc::SIG_UNBLOCK, &raw const handled, ptr::null_mut());
                Ok(())
            }
            program => run_first_process(program, &handled),
        }
    }
}

/// Mounts the `/proc` of this PID namespace, which shows its processes by their numbers. Where that
/// is refused, the old one stays.
fn mount_proc() {
    // SAFETY: the strings end with a zero byte.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let proc = c"proc".as_ptr();
            libc::mount(proc, c"/proc".as_ptr(), proc, flags, ptr::null());
        }
    }
}

/// Reaps processes and passes SIGTERM on, until `program` ends.
fn run_first_process(program: libc::pid_t, handled: &libc::sigset_t) -> ! {
    // SAFETY: system calls with pointers to local variables. No descriptor is used after this: this
    // process runs no other code.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            for descriptor in 0..DESCRIPTORS_MAX {
                libc::close(descriptor);
            }
        }
        loop {
            let mut status = 0;
            match libc::waitpid(-1, &raw mut status, libc::WNOHANG) {
                ended if ended == program => libc::_exit(exit_status(status)),
                ended if ended > 0 => continue,
                _ => {}
            }
            if libc::sigwaitinfo(handled, ptr::null_mut()) == libc::SIGTERM {
                libc::kill(program, libc::SIGTERM);
            }
        }
    }
}

fn exit_status(status: libc::c_int) -> libc::c_int {
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => 128 + libc::WTERMSIG(status),
    }
}
