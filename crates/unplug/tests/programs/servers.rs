//! A server, and the client that drives it.

use crate::support::answer;

/// Writes each line of the pipe `requests` to a file, answers it in the pipe `answers`, and syncs
/// as `sync` says. A request `stop` ends it.
fn server(sync: &str) -> String {
    format!(
        "trap 'echo stopped >> log; sync log; exit 0' TERM
         mkfifo $PIPES/requests $PIPES/answers; : > $PIPES/ready
         echo not an acknowledgement
         while read line < $PIPES/requests; do
             [ $line = stop ] && exit 0
             echo $line >> log; {sync}
             echo $line > $PIPES/answers
         done"
    )
}

const CLIENT: &str = r#"
    until [ -e $PIPES/ready ]; do sleep 0.1; done
    for number in 1 2 3; do
        echo $number > $PIPES/requests; read answer < $PIPES/answers; echo $answer
    done"#;

/// Accepts a log that has all lines of the output.
const CHECK: &str = r#"! grep -vxFf "$UNPLUG_DIR/log" "$UNPLUG_OUTPUT""#;

fn drive(server: &str, client: &str) -> Option<(i32, String)> {
    let pipes = tempfile::tempdir().expect("a folder");
    let variable = format!("PIPES={};", pipes.path().display());
    let (server, client) = (format!("{variable} {server}"), format!("{variable} {client}"));
    let arguments = ["--states", "60", "--check", CHECK, "--drive", &client, "--setup", ": > log"];
    answer(&[&arguments[..], &["--", "sh", "-c", &server]].concat())
}

#[test]
fn output_of_the_client_acknowledges() {
    let Some((code, answer)) = drive(&server("sync log"), CLIENT) else { return };
    assert_eq!(code, 0, "{answer}");
    assert!(!answer.contains("note:"), "{answer}");
    let (code, answer) = drive(&server(":"), CLIENT).expect("ran just now");
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("write(log, 2 bytes at 0)"), "{answer}");
}

#[test]
fn failed_client_measures_nothing() {
    let Some((code, answer)) = drive(&server("sync log"), &format!("{CLIENT}; exit 7")) else {
        return;
    };
    assert_eq!(code, 3, "{answer}");
    assert!(answer.contains("note: the client failed: exit status: 7"), "{answer}");
}

#[test]
fn client_may_stop_the_server() {
    let client = format!("{CLIENT}; echo stop > $PIPES/requests");
    let Some((code, answer)) = drive(&server("sync log"), &client) else { return };
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn server_that_ignores_sigterm_is_killed() {
    let stubborn =
        "trap '' TERM; echo 1 > log; sync log; : > $PIPES/ready; while :; do sleep 1; done";
    let client = "until [ -e $PIPES/ready ]; do sleep 0.1; done";
    let Some((code, answer)) = drive(stubborn, client) else { return };
    assert_eq!(code, 0, "{answer}");
    assert!(answer.contains("note: the program was killed"), "{answer}");
}
