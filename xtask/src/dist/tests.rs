//! Packing of given programs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::*;

/// 2001-09-09 01:46:40.
const EPOCH: u64 = 1_000_000_000;
const TOOLS: [&str; 4] = ["tar", "gzip", "sha256sum", "md5sum"];

/// A program that prints pages as `esker` does.
const PROGRAM: &str = "#!/bin/sh\n\
    case $1 in\n\
    man) echo page > \"$2/esker.1\"; echo page of serve > \"$2/esker-serve.1\" ;;\n\
    completions) echo \"completions of $2\" ;;\n\
    esac\n";

/// Whether this machine can pack; prints what is missing.
fn can_pack() -> bool {
    let missing = TOOLS.into_iter().find(|tool| !tools::is_installed(tool));
    let without = missing.or((!is_gnu_tar()).then_some("GNU tar"));
    if let Some(tool) = without {
        println!("SKIPPED packing: no {tool}");
    }
    without.is_none()
}

fn is_gnu_tar() -> bool {
    let version = Command::new("tar").arg("--version").output();
    version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("GNU tar"))
}

/// Packs the programs of a folder; returns the bytes of each package.
fn packed(programs: &Path, out: &Path) -> BTreeMap<String, Vec<u8>> {
    let release = Release::for_test(out, EPOCH).unwrap();
    release.empty_folders().unwrap();
    let programs = Programs::in_folder(programs);
    let pages = Pages::printed_by(&release, &programs.esker).unwrap();
    pack(&release, Target::X86, &programs, &pages).unwrap();
    tools::write_sums(out).unwrap();
    let files = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn programs(dir: &Path) {
    for name in ["esker", "unplug"] {
        let path = dir.join(name);
        fs::write(&path, PROGRAM).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    }
}

fn listed(command: &mut Command) -> Vec<String> {
    let output = tools::output(command).unwrap();
    String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_same_programs_make_the_same_packages() {
    if !can_pack() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    programs(dir.path());
    let first = packed(dir.path(), &dir.path().join("first"));
    // Times of files differ.
    std::thread::sleep(Duration::from_millis(1100));
    let second = packed(dir.path(), &dir.path().join("second"));
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (name, bytes) in &first {
        assert!(*bytes == second[name], "{name} differs");
    }
    assert!(first.contains_key("esker-1.2.3-x86_64-unknown-linux-musl.tar.gz"));
    assert!(first.contains_key("unplug-1.2.3-x86_64-unknown-linux-musl.tar.gz"));
    let sums = String::from_utf8(first["SHA256SUMS"].clone()).unwrap();
    assert_eq!(sums.lines().count(), first.len() - 1);
}

#[test]
fn an_archive_has_owners_modes_and_times_of_no_machine() {
    if !can_pack() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    programs(dir.path());
    let out = dir.path().join("out");
    packed(dir.path(), &out);
    let archive = out.join("esker-1.2.3-x86_64-unknown-linux-musl.tar.gz");
    let mut list = Command::new("tar");
    list.args(["--list", "--verbose", "--utc", "--numeric-owner", "--file"]).arg(archive);
    let entries = listed(&mut list);
    for entry in &entries {
        assert!(entry.contains(" 0/0 ") && entry.contains(" 2001-09-09 01:46 "), "{entry}");
        let modes = ["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"];
        assert!(modes.iter().any(|mode| entry.starts_with(mode)), "{entry}");
    }
    for wanted in [
        "-rwxr-xr-x 0/0 bin/esker",
        "-rw-r--r-- 0/0 etc/esker/esker.toml",
        "-rw-r--r-- 0/0 lib/systemd/system/esker.service",
        "-rw-r--r-- 0/0 share/man/man1/esker-serve.1.gz",
        "-rw-r--r-- 0/0 share/bash-completion/completions/esker",
        "-rw-r--r-- 0/0 share/zsh/site-functions/_esker",
        "-rw-r--r-- 0/0 share/fish/vendor_completions.d/esker.fish",
        "-rw-r--r-- 0/0 share/doc/esker/LICENSE-MIT",
        "-rw-r--r-- 0/0 share/doc/esker/LICENSES-OTHERS",
    ] {
        let (mode, path) = wanted.split_once(" 0/0 ").unwrap();
        let is_it =
            |entry: &String| entry.starts_with(mode) && entry.ends_with(&format!("/{path}"));
        assert!(entries.iter().any(is_it), "{wanted}: {entries:#?}");
    }
}

#[test]
fn a_debian_package_keeps_settings_and_has_its_scripts() {
    if !can_pack() {
        return;
    }
    if let Some(why) = debian::missing() {
        println!("SKIPPED Debian's packages: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    programs(dir.path());
    let out = dir.path().join("out");
    packed(dir.path(), &out);
    let package = out.join("esker_1.2.3_amd64.deb");
    let field = |name: &str| listed(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name));
    assert_eq!(field("Version"), ["1.2.3"]);
    assert_eq!(field("Architecture"), ["amd64"]);
    assert!(field("Installed-Size")[0].parse::<u64>().unwrap() > 0);
    let described = dir.path().join("described");
    tools::finish(Command::new("dpkg-deb").arg("-e").arg(&package).arg(&described)).unwrap();
    let text = |name: &str| fs::read_to_string(described.join(name)).unwrap();
    assert_eq!(text("conffiles"), "/etc/esker/esker.toml\n");
    // Tools that compare sums report no settings that were changed.
    assert!(text("md5sums").contains("usr/bin/esker") && !text("md5sums").contains("esker.toml"));
    for script in ["postinst", "prerm", "postrm"] {
        let mode = fs::metadata(described.join(script)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{script}");
    }
    let installed = dir.path().join("installed");
    tools::finish(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&installed)).unwrap();
    let sums = described.join("md5sums");
    let mut check = Command::new("md5sum");
    check.args(["--check", "--quiet"]).arg(sums).current_dir(&installed);
    tools::finish(&mut check).unwrap();
    // A package starts nothing.
    let scripts = text("postinst");
    let starts = ["start ", "restart ", "enable ", "deb-systemd-invoke"];
    let commands = scripts.lines().filter(|line| !line.contains("echo") && !line.starts_with('#'));
    for line in commands {
        assert!(starts.iter().all(|word| !line.contains(word)), "{line}");
    }
}

/// The programs that are built have the licences of what they are made of.
#[test]
fn licences_are_those_of_the_crates_of_each_program() {
    let dir = tempfile::tempdir().unwrap();
    let release = Release::for_test(dir.path(), EPOCH).unwrap();
    let licences = licences::collect(&release, Target::X86).unwrap();
    let (esker, unplug) = (licences.text("esker"), licences.text("unplug"));
    let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(has(esker, "tokio 1.") && has(esker, "openraft 0.") && has(unplug, "fuser 0."));
    // Neither those of tests, nor those of the other program, nor those of other systems.
    for other in ["proptest ", "fuser ", "windows-sys "] {
        assert!(!has(esker, other), "{other}");
    }
    assert!(esker.contains("Permission is hereby granted, free of charge"));
}

/// Bug: buildah names each image after the container that it was built in.
#[test]
fn an_image_does_not_name_the_container_in_which_it_was_built() {
    if !can_pack() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let packed = |container: &str| {
        let folder = dir.path().join(container);
        fs::create_dir(&folder).unwrap();
        let config = format!(
            r#"{{"config":{{"Hostname":"{container}","User":"65532"}},"container":"{container}"}}"#
        );
        for (file, text) in [
            ("7.json", config.as_str()),
            ("9.tar", "layer"),
            ("manifest.json", r#"[{"Config":"7.json","Layers":["9.tar"]}]"#),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let archive = dir.path().join(format!("{container}.tar"));
        let mut tar = Command::new("tar");
        tar.arg("--create").arg("--file").arg(&archive).arg("--directory").arg(&folder);
        tools::finish(tar.arg(".")).unwrap();
        let unpacked = folder.join("unpacked");
        let files = container::repeatable(&archive, &unpacked, "localhost/esker:1").unwrap();
        files.map(|file| fs::read_to_string(unpacked.join(file)).unwrap())
    };
    let [config, layer, manifest] = packed("a7752285e23b");
    assert_eq!(
        (config.as_str(), layer.as_str()),
        (r#"{"config":{"Hostname":"","User":"65532"}}"#, "layer")
    );
    assert!(manifest.contains("localhost/esker:1"), "{manifest}");
    assert_eq!(packed("81579e61dc51"), [config, layer, manifest]);
}

/// Bug: `--out` removed all that was in the folder, whatever it was.
#[test]
fn a_folder_of_other_files_is_not_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    assert_eq!(release::given_folder(&out).unwrap(), out);
    Release::for_test(&out, EPOCH).unwrap().empty_folders().unwrap();
    fs::write(out.join("esker.deb"), "").unwrap();
    release::given_folder(&out).unwrap();
    fs::remove_dir(out.join("staging")).unwrap();
    let refused = release::given_folder(&out).unwrap_err().to_string();
    assert!(refused.contains("give an empty folder"), "{refused}");
    fs::remove_file(out.join("esker.deb")).unwrap();
    release::given_folder(&out).unwrap();
}
