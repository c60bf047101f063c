//! The page of a report.

use std::fs;

use crate::support::answer;

#[test]
fn page_shows_the_failing_state_and_how_to_build_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("is text").to_owned();
    let (page, recording) = (path("report.html"), path("recording"));
    let program = "echo a > '<b>'; echo saved";
    let check = "[ ! -s \"$UNPLUG_OUTPUT\" ] || [ -s '<b>' ]";
    let arguments = ["--report", &page, "--record", &recording, "--check", check];
    let arguments = [&arguments[..], &["--", "sh", "-c", program]].concat();
    let Some((code, _)) = answer(&arguments) else { return };
    assert_eq!(code, 1);
    let html = fs::read_to_string(&page).expect("is written");
    let lost =
        "<tr class=\"lost\"><td>3</td><td>2</td><td><del>write(&lt;b&gt;, 2 bytes at 0)</del>";
    let survived = "<tr class=\"survived\"><td>2</td><td>1</td><td>create(&lt;b&gt;)</td>";
    assert!(html.contains(lost) && html.contains(survived), "{html}");
    assert!(html.contains(&format!("unplug replay {recording} --state ")), "{html}");

    // A replay without a check lists the same requests.
    let replay = ["replay", &recording, "--report", &page];
    let (code, _) = answer(&replay).expect("ran just now");
    assert_eq!(code, 1);
    let html = fs::read_to_string(&page).expect("is written");
    assert!(html.contains("<tr class=\"losable\"><td>2</td><td>1</td>"), "{html}");
}
