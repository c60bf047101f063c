//! The socket by which a test says "cut here", and its client, `unplug cut`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The variable with the path of the socket.
pub const VARIABLE: &str = "UNPLUG_SOCKET";
const NAME_BYTES_MAX: u64 = 200;
/// How long either side waits for the other.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER: &[u8] = b"recorded\n";

/// Listens in a thread. A client sends a name, ends its side, and gets an answer when `record` has
/// recorded the cut; `record` returns `false` when the run has ended.
pub fn listen(path: &Path, record: impl Fn(String) -> bool + Send + 'static) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            // A client that fails sees it by itself.
            let _ = answer(client, &record);
        }
    });
    Ok(())
}

fn answer(mut client: UnixStream, record: impl Fn(String) -> bool) -> io::Result<()> {
    set_timeouts(&client)?;
    let mut name = Vec::new();
    (&client).take(NAME_BYTES_MAX).read_to_end(&mut name)?;
    match record(String::from_utf8_lossy(&name).into_owned()) {
        true => client.write_all(ANSWER),
        false => Ok(()),
    }
}

/// Records a cut in the run that this process is part of.
pub fn cut(name: &str) -> Result<()> {
    if name.len() as u64 > NAME_BYTES_MAX {
        bail!("the name of a cut has at most {NAME_BYTES_MAX} bytes");
    }
    let path = std::env::var_os(VARIABLE).with_context(|| {
        format!("{VARIABLE} is not set: only the program or the client of a run can cut it")
    })?;
    let answer = send(Path::new(&path), name);
    let answer = answer.with_context(|| format!("no answer from {}", path.display()))?;
    if answer == ANSWER { Ok(()) } else { bail!("the run has ended") }
}

fn send(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut server = UnixStream::connect(path)?;
    set_timeouts(&server)?;
    server.write_all(name.as_bytes())?;
    server.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    server.take(ANSWER.len() as u64).read_to_end(&mut answer)?;
    Ok(answer)
}

fn set_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    stream.set_write_timeout(Some(PEER_TIMEOUT))
}
