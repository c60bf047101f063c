//! The machine on which a figure was measured: processor, disk, file system, kernel and compiler.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// The machine and the file system of a benchmark's directory. What the system does not report is
/// `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    pub cpu: Option<String>,
    pub cores: usize,
    pub memory_gb: Option<f64>,
    pub disk: Disk,
    pub file_system: Option<String>,
    pub mount_options: Option<String>,
    pub os: Option<String>,
    pub kernel: Option<String>,
    pub compiler: &'static str,
    /// `release` or `debug`.
    pub build: &'static str,
    pub version: &'static str,
}

/// The block device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Disk {
    pub device: Option<String>,
    pub model: Option<String>,
    pub rotational: Option<bool>,
    /// The device that `--slow-disk` emulates.
    pub emulated: Option<&'static str>,
}

impl Environment {
    /// Describes the machine and the file system of this directory, which exists.
    pub fn describe(dir: &Path) -> Self {
        let mount = Mount::find(dir);
        let (device, file_system, mount_options) = match mount {
            Some(mount) => (Some(mount.device), Some(mount.kind), Some(mount.options)),
            None => (None, None, None),
        };
        let mut disk =
            device.as_ref().map(|device| Disk::describe(&device.number)).unwrap_or_default();
        disk.device = device.map(|device| device.name);
        let memory = value("/proc/meminfo", "MemTotal");
        let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
        Self {
            cpu: value("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: kib.map(|kib| (kib * 1024.0 / 1e8).round() / 10.0),
            disk,
            file_system,
            mount_options,
            os: os_name(),
            kernel: read("/proc/sys/kernel/osrelease"),
            compiler: env!("ESKER_COMPILER"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        let memory = self.memory_gb.map_or_else(String::new, |gb| format!(", {gb} GB of memory"));
        writeln!(f, "cpu:         {}, {} cores{memory}", or(&self.cpu), self.cores)?;
        let emulated = self.disk.emulated.map_or_else(String::new, |name| format!(", as {name}"));
        let model = or(&self.disk.model);
        writeln!(f, "disk:        {} ({model}){emulated}", or(&self.disk.device))?;
        writeln!(f, "file system: {} ({})", or(&self.file_system), or(&self.mount_options))?;
        writeln!(f, "system:      {}, kernel {}", or(&self.os), or(&self.kernel))?;
        writeln!(f, "compiler:    {}, {} build", self.compiler, self.build)
    }
}

impl Disk {
    /// Describes the device with this number, `MAJOR:MINOR`.
    fn describe(number: &str) -> Self {
        // A partition has its disk one level up.
        let of_disk = |name: &str| {
            let near = read(&format!("/sys/dev/block/{number}/{name}"));
            near.or_else(|| read(&format!("/sys/dev/block/{number}/../{name}")))
        };
        let vendor = of_disk("device/vendor");
        let model = match (of_disk("device/model"), vendor.as_deref()) {
            (Some(model), _) => Some(model),
            (None, Some("0x1af4")) => Some("virtio, a virtual disk".into()),
            (None, Some(vendor)) => Some(format!("vendor {vendor}")),
            (None, None) => None,
        };
        let rotational = of_disk("queue/rotational").map(|flag| flag == "1");
        Self { device: None, model, rotational, emulated: None }
    }
}

struct Device {
    number: String,
    name: String,
}

struct Mount {
    device: Device,
    kind: String,
    options: String,
}

impl Mount {
    /// The mount that holds the directory.
    fn find(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let found = mounts.lines().filter_map(Self::parse);
        let holding = found.filter(|(at, _)| dir.starts_with(at));
        // Of two mounts at the same place, the later one hides the other.
        holding.max_by_key(|(at, _)| at.len()).map(|(_, mount)| mount)
    }

    /// Parses a line such as `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard`.
    fn parse(line: &str) -> Option<(&str, Self)> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let (number, at, options) = (left.next()?, left.nth(1)?, left.next()?);
        let mut right = right.split(' ');
        let (kind, name, more) = (right.next()?, right.next()?, right.next()?);
        let mut all: Vec<&str> = options.split(',').collect();
        all.extend(more.split(',').filter(|option| !options.split(',').any(|own| own == *option)));
        let device = Device { number: number.into(), name: name.into() };
        Some((at, Self { device, kind: kind.into(), options: all.join(",") }))
    }
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The value of a line `NAME: VALUE`.
fn value(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_its_options_and_those_of_its_file_system() {
        let line = "27 1 254:0 / /data rw,relatime shared:1 - ext4 /dev/vda rw,discard";
        let (at, mount) = Mount::parse(line).unwrap();
        assert_eq!((at, &*mount.kind, &*mount.options), ("/data", "ext4", "rw,relatime,discard"));
        assert_eq!((&*mount.device.number, &*mount.device.name), ("254:0", "/dev/vda"));
        assert!(Mount::parse("27 1 254:0 / /").is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_is_described() {
        let here = Environment::describe(Path::new("."));
        for known in [&here.cpu, &here.file_system, &here.mount_options, &here.os, &here.kernel] {
            assert!(known.is_some(), "{here:?}");
        }
        assert!(here.cores > 0 && here.memory_gb.is_some_and(|gb| gb > 0.1), "{here:?}");
        assert!(here.disk.device.is_some() && here.compiler.starts_with("rustc 1."), "{here:?}");
    }
}
