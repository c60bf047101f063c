//! A log is a directory. A file in its place is status 1, and stays as it is; so does a directory
//! of something else.

use crate::esker::{log, workdir};

const COMMANDS: [(&str, &[&str]); 6] = [
    ("append", &[]),
    ("cat", &[]),
    ("stat", &[]),
    ("verify", &[]),
    ("repair", &[]),
    ("truncate", &["--before", "1"]),
];

#[test]
fn every_command_refuses_a_file() {
    let (_guard, path) = workdir();
    std::fs::write(&path, "precious").unwrap();
    for (verb, flags) in COMMANDS {
        log(verb, &path, flags, b"x\n").exits(1).says(&[path.to_str().unwrap(), "it is a file"]);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn nothing_where_the_log_should_be() {
    let (_guard, path) = workdir();
    for (verb, flags) in &COMMANDS[1..] {
        log(verb, &path, flags, b"").exits(1).says(&[path.to_str().unwrap()]);
        assert!(!path.exists(), "{verb} made it");
    }
}

#[test]
fn a_directory_of_something_else() {
    let (_guard, path) = workdir();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("thesis.txt"), "precious").unwrap();
    for (verb, flags) in COMMANDS {
        log(verb, &path, flags, b"x\n").exits(1).says(&[path.to_str().unwrap()]);
    }
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
}
