//! The programs of the system that pack.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Whether `program` is in the path.
pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs `command` to its end.
pub fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{status}: {command:?}");
    Ok(())
}

/// The standard output of `command`, which has to succeed.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{}: {command:?}", output.status);
    Ok(output.stdout)
}

/// Compresses `file`, without its name and time.
pub fn gzip(file: &Path) -> Result<Vec<u8>> {
    output(Command::new("gzip").args(["-9", "-n", "-c"]).arg(file))
}

/// Writes the sums of all files of `folder` to its `SHA256SUMS`.
pub fn write_sums(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let sums = output(Command::new("sha256sum").args(names).current_dir(folder))?;
    std::fs::write(folder.join("SHA256SUMS"), sums)?;
    Ok(())
}

/// The MD5 sums of `paths` below `folder`, as Debian's packages have them.
pub fn md5_sums<P: AsRef<OsStr>>(folder: &Path, paths: &[P]) -> Result<Vec<u8>> {
    output(Command::new("md5sum").args(paths).current_dir(folder))
}

/// The folder of the compiler's own libraries.
pub fn sysroot() -> Result<PathBuf> {
    let printed = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(String::from_utf8(printed)?.trim()))
}
