//! The commands of the chapter about the service start what they say they start.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;
use std::time::{Duration, Instant};

use esker_server::{Members, ask};
use esker_testkit::free_port;

use crate::esker::{command, run};
use crate::lines::{NodeProcess, serve};
use crate::nodes::LONG;

const PAGE: &str = include_str!("../../../../docs/src/service.md");
const UNIT: &str = include_str!("../../../../packaging/systemd/esker.service");

/// The text after a heading, up to the next.
fn section(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The lines of the fences of one kind.
fn lines(heading: &str, kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    let fences = section(heading).split(&fence).skip(1);
    fences.flat_map(|rest| rest.split("```").next().unwrap().lines()).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').skip(2).map(str::to_owned).collect()
}

async fn members(address: &str) -> Option<Members> {
    let answer = ask(address, "/members", None, Duration::from_secs(1)).await.ok()?;
    serde_json::from_slice(&answer.body).ok()
}

async fn until_voters(address: &str, count: usize) {
    let deadline = Instant::now() + LONG;
    loop {
        let found = members(address).await;
        let voters = found.iter().flat_map(|all| &all.members).filter(|one| one.voter).count();
        let is_stable = |all: &Members| all.leader.is_some() && !all.changing;
        if voters == count && found.as_ref().is_some_and(is_stable) {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// On another port, and each command with what it prints, apart from the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_does_what_the_page_shows() {
    let dir = tempfile::tempdir().unwrap();
    let (port, raft) = (free_port(), free_port());
    let page = lines("One node", "console");
    assert_eq!(page[0], "$ esker serve & sleep 1");
    let ports = ["--http-port", &port.to_string(), "--raft-addr", &format!("127.0.0.1:{raft}")];
    let mut node = NodeProcess::start(serve(&ports).current_dir(&dir));
    let address = node.answers();
    until_voters(&address, 1).await;
    let endpoint = ["--endpoint".to_owned(), format!("http://{address}")];
    let (mut commands, mut at) = (0, 1);
    while at < page.len() {
        let line = page[at].strip_prefix("$ ").unwrap();
        let shown = page[at + 1..].iter().take_while(|line| !line.starts_with("$ ")).count();
        let printed = match line.strip_prefix("esker ") {
            Some(of_esker) => {
                let mut of_esker: Vec<_> = of_esker.split(' ').map(str::to_owned).collect();
                if !of_esker.contains(&"decode".to_owned()) {
                    of_esker.extend(endpoint.clone());
                }
                run(command(&of_esker), b"").ok().text().to_owned()
            }
            // Not every machine has curl and xxd.
            None => {
                assert!(line.starts_with("curl ") && line.contains("127.0.0.1:8080/timestamp"));
                let answer = ask(&address, "/timestamp", None, LONG).await.unwrap();
                answer.body.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        };
        // Digits apart, it is what the page shows.
        let form = |text: &str| -> Vec<String> {
            let form = |c: char| if c.is_ascii_hexdigit() { '0' } else { c };
            text.lines().map(|line| line.chars().map(form).collect()).collect()
        };
        assert_eq!(form(&printed), form(&page[at + 1..=at + shown].join("\n")), "{line}");
        (commands, at) = (commands + 1, at + 1 + shown);
    }
    assert!(commands >= 3, "{page:?}");
    assert!(dir.path().join("esker-data").is_dir());
    node.stop();
}

/// On other addresses, and node 1 again with the same command, as the page says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_start_as_the_page_says() {
    let mut commands: Vec<String> =
        lines("Three nodes", "sh").iter().map(|&line| line.into()).collect();
    assert_eq!(commands.remove(0), "esker cluster local ./three");
    let dir = tempfile::tempdir().unwrap();
    let certs = commands.remove(0);
    let mut certs = command(&certs.split(' ').skip(1).collect::<Vec<_>>());
    certs.current_dir(&dir);
    run(certs, b"").ok();
    let exported = [commands.remove(0), commands.remove(0)];
    let exported =
        exported.iter().flat_map(|line| line.strip_prefix("export ").unwrap().split(' '));
    let variables: Vec<_> = exported.map(|one| one.split_once('=').unwrap()).collect();
    assert_eq!(commands.len(), 3);
    let mut addresses = Vec::new();
    for host in 1..=3 {
        let [client, raft] = [8080, 8081].map(|port| {
            let own = format!("127.0.0.1:{}", free_port());
            let shown = format!("10.0.0.{host}:{port}");
            commands.iter_mut().for_each(|line| *line = line.replace(&shown, &own));
            own
        });
        assert!(commands.iter().all(|line| line.contains(&client)));
        assert!(commands[host - 1].contains(&raft));
        addresses.push(client);
    }
    assert!(commands.iter().all(|line| !line.contains("10.0.0.")), "{commands:?}");
    for host in 1..=3 {
        let own = dir.path().join(format!("host{host}"));
        std::fs::create_dir(&own).unwrap();
        std::fs::rename(dir.path().join(format!("certs/node-{host}")), own.join("certs")).unwrap();
    }
    let start = |host: usize| {
        let mut serve = serve(&[]);
        serve.args(words(&commands[host - 1])).current_dir(dir.path().join(format!("host{host}")));
        serve.envs(variables.iter().copied());
        // The test asks without TLS.
        serve.env("ESKER_PLAIN_HTTP", "on");
        NodeProcess::start(&mut serve)
    };
    let mut nodes: Vec<_> = (1..=3).map(start).collect();
    for node in &mut nodes {
        node.answers();
    }
    for address in &addresses {
        until_voters(address, 3).await;
    }
    nodes.remove(0).stop();
    nodes.push(start(1));
    until_voters(&addresses[0], 3).await;
    nodes.into_iter().for_each(|node| drop(node.stop()));
}

/// The unit runs a program that starts with the file of the page, and restarts it.
///
/// Bug: `systemd` gave up after five starts on a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unit_has_what_it_names() {
    let trimmed = |kind| lines("As a service", kind).into_iter().map(str::trim).collect::<Vec<_>>();
    let unit: Vec<_> = UNIT.lines().collect();
    assert_eq!(
        lines("As a service", "ini"),
        ["{{#include ../../packaging/systemd/esker.service}}"]
    );
    let line = |name: &str| unit.iter().find_map(|line| line.strip_prefix(name)).unwrap();
    let at = |wanted: &str| unit.iter().position(|line| *line == wanted).unwrap();
    assert!(at("[Unit]") < at("StartLimitIntervalSec=0"));
    assert!(at("StartLimitIntervalSec=0") < at("[Service]"));
    let page = section("As a service");
    assert!(page.contains(&format!(
        "useradd --system --user-group --no-create-home --shell \
                                    /usr/sbin/nologin {}",
        line("User=")
    )));
    let started = line("ExecStart=esker serve --data /var/lib/esker/data --config ");
    assert!(page.contains(&format!("Write `{started}`")), "{started}");
    // The file, with addresses of this machine, and without files that it lacks.
    let is_there = |line: &&str| !line.contains("/etc/esker/");
    let mut file = trimmed("toml").into_iter().filter(is_there).collect::<Vec<_>>().join("\n");
    for address in ["10.0.0.1:8080", "127.0.0.1:8081"] {
        assert!(file.contains(address));
        file = file.replace(address, "127.0.0.1:0");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("esker.toml"), file).unwrap();
    let data = ["--data", "data", "--config", "esker.toml"];
    let mut node = NodeProcess::start(serve(&data).current_dir(&dir));
    until_voters(&node.answers(), 1).await;
    node.stop();
}

/// The page says what a user has to know before using the service.
#[test]
fn the_page_says_what_a_user_has_to_know() {
    for (heading, said) in [
        ("One node", &["Never delete the data", "35 MB", "allow 400 MB", "0700"][..]),
        ("Settings of the machine", &["ulimit -Hn", "LimitNOFILE=", "net.core.somaxconn", "4,096"]),
        ("Why hybrid time", &["Why not etcd?", "Why not Redis?", "clients wait out"]),
        ("Whether to use it", &["no use in production is known", "one machine"]),
        ("What it is good for, and what not", &["neither encrypted nor authenticated"]),
    ] {
        said.iter().for_each(|said| assert!(section(heading).contains(said), "{heading}: {said}"));
    }
    // Those of the page that only read.
    for line in lines("Settings of the machine", "sh") {
        let ended = Command::new("sh").args(["-c", line]).output().unwrap();
        let lacks = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() || lacks.contains("not found") || lacks.contains("stat"));
    }
}
