//! Wrong command lines.

use crate::esker::{command, program, run, workdir};

/// Bug: the help of `ts` offered a protocol that is not there.
#[test]
fn grpc_is_neither_offered_nor_accepted() {
    run(command(&["ts", "--protocol", "grpc"]), b"").exits(2);
    let help = run(command(&["ts", "--help"]), b"").ok();
    assert!(help.text().contains("h2c") && !help.text().to_lowercase().contains("grpc"));
}

#[test]
fn callers_use_http_1() {
    run(command(&["ts", "--callers", "5", "--protocol", "h2c"]), b"").exits(2);
}

/// A sequence has neither a width nor a format, and only the client of the Rust crate takes its
/// numbers.
#[test]
fn flags_that_say_nothing_of_sequences_are_refused() {
    for flags in [&["--protocol", "h2c"][..], &["--connections", "5"], &["--u64"], &["--rate", "9"]]
    {
        let words = [&["ts", "--sequence", "orders"][..], flags].concat();
        run(command(&words), b"").exits(2);
    }
    let refused = run(command(&["ts", "--sequence", "or/ders"]), b"").exits(2);
    assert!(refused.err.contains("hyphens"), "{}", refused.err);
}

/// `--help` of every benchmark ends with examples that name the command itself.
#[test]
fn every_benchmark_has_examples() {
    for name in ["log", "kv", "consensus", "ts"] {
        let help = run(command(&[name, "--help"]), b"").ok();
        let examples = help.text().split("Examples:").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("esker-bench {name}")), "{name}");
    }
}

#[test]
fn flags_that_would_do_nothing() {
    for arguments in [
        &["log", "--after", "kill", "--seconds", "1"][..],
        &["floor", "--raw", "--no-writer", "--readers", "0"],
    ] {
        run(command(arguments), b"").exits(2);
    }
}

/// Guards against a benchmark that measures something else than it was asked for, and does not say
/// so.
#[test]
fn benchmark_of_zero_operations_is_refused() {
    for (arguments, word) in [
        (&["log", "--writers", "many"][..], "not a whole number"),
        (&["ts", "--timeout", "0"], "--timeout <TIME>"),
        (&["log", "--count", "0"], "--count"),
        (&["log", "--seconds", "0"], "--seconds"),
        (&["log", "--seconds", "nan"], "--seconds"),
        (&["log", "--writers", "100", "--count", "199"], "--count 200"),
        (&["log", "--readers", "3", "--count", "0"], "--count"),
        (&["log", "--catchup", "--seconds", "0"], "--seconds"),
        (&["floor", "--seconds", "0"], "--seconds"),
        (&["consensus", "--count", "0"], "--count"),
        (&["consensus", "--seconds", "0"], "--seconds"),
        (&["consensus", "--entries", "0"], "--entries"),
    ] {
        let refused = run(command(arguments), b"").exits(2);
        assert!(refused.err.contains(word) && refused.out.is_empty(), "{}", refused.err);
    }
}

#[test]
fn flags_of_readers_want_readers() {
    for (flags, word) in [
        (&["--rate", "1M"][..], "--readers"),
        (&["--verify", "full"], "--readers"),
        (&["--bytes", "1M"], "--catchup"),
        (&["--readers", "3", "--writers", "2"], "--writers 1"),
        (&["--catchup", "--writers", "2"], "--writers 1"),
        (&["--readers", "3", "--rate", "1", "--seconds", "1"], "--rate 0"),
        (&["--readers", "0"], "--readers"),
        (&["--readers", "3", "--catchup"], "--readers"),
    ] {
        let mut bench = command(&["log"]);
        bench.args(flags);
        let ended = run(bench, b"").exits(2);
        assert!(ended.err.contains(word), "{flags:?}: {}", ended.err);
    }
}

#[test]
fn benchmark_refuses_a_file() {
    let (_guard, path) = workdir();
    std::fs::write(&path, "precious").unwrap();
    let mut bench = command(&["log", "--count", "2", "--dir"]);
    bench.arg(&path);
    run(bench, b"").exits(1).says(&[path.to_str().unwrap(), "is a file"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// `--help` is wrapped to the width of a terminal, also of one that is wide.
#[test]
fn every_help_fits_a_terminal() {
    for words in [&[][..], &["log"], &["kv"], &["consensus"], &["ts"], &["floor"]] {
        for columns in ["80", "1000"] {
            let mut help = command(words);
            help.arg("--help").env("COLUMNS", columns);
            let help = run(help, b"").ok();
            let wide = help.text().lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{words:?}");
        }
    }
}

/// A message about an option of the library names the flag that sets it.
#[test]
fn every_flag_in_a_message_exists() {
    let help = run(command(&["log", "--help"]), b"").ok();
    let append = run(program("esker", &["log", "append", "--help"]), b"").ok();
    for flag in esker_command::option_flags::all() {
        let exists = |help: &str| help.split_whitespace().any(|word| word == flag);
        assert!(exists(help.text()) || exists(append.text()), "{flag}");
    }
}
