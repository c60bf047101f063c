//! File systems on images in files, mounted for the time of a measurement. Needs root.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The file systems that are compared.
pub const FILE_SYSTEMS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];
/// The size of the image of each file system.
const IMAGE_BYTES: u64 = 1500 << 20;

/// Runs `measure` in a new directory of this file system, and removes it all.
pub fn within<T>(
    file_system: &str,
    dir: &Path,
    measure: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let image = dir.join(format!("{file_system}.img"));
    let mounted = dir.join(file_system);
    fs::create_dir_all(&mounted).with_context(|| mounted.display().to_string())?;
    let result = mount(file_system, &image, &mounted).and_then(|()| {
        let result = measure(&mounted.join("data"));
        run(Command::new("umount").arg(&mounted)).and(result)
    });
    for path in [&image, &mounted] {
        let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        if let Err(error) = removed
            && path.exists()
        {
            eprintln!("experiment: {} stays: {error}", path.display());
        }
    }
    result
}

fn mount(file_system: &str, image: &Path, at: &Path) -> Result<()> {
    let mut mount = Command::new("mount");
    if file_system == "tmpfs" {
        mount.args(["-t", "tmpfs", "-o", &format!("size={IMAGE_BYTES}"), "tmpfs"]);
    } else {
        fs::File::create(image)?.set_len(IMAGE_BYTES)?;
        run(Command::new(format!("mkfs.{file_system}")).arg("-q").arg(image))?;
        mount.args(["-o", "loop"]).arg(image);
    }
    run(mount.arg(at))
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| name.clone())?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
