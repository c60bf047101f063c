//! The page of a node: its headers, who may change the cluster with it, and what it shows in a
//! browser.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::{Browser, REBOUND_NAME};
use crate::client::{ALL, Protocol, get, send, send_to};
use crate::nodes::{Nodes, TEST_TIMEOUT};
use crate::tls::{TOKEN, token_file};

/// The document, its style and its script.
const PARTS: [(&str, &str); 3] = [
    ("/", "text/html; charset=utf-8"),
    ("/page.css", "text/css; charset=utf-8"),
    ("/page.js", "text/javascript; charset=utf-8"),
];
const POLICY: [&str; 6] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
];

/// Clients other than browsers get the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_comes_whole_and_with_its_policy() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    for protocol in ALL {
        let mut bytes = 0;
        for (path, kind) in PARTS {
            let part = get(protocol, &address, path).await;
            assert_eq!((part.status, part.header("content-type")), (200, Some(kind)), "{path}");
            let policy = part.header("content-security-policy").unwrap();
            let directives: Vec<_> = policy.split("; ").collect();
            assert!(POLICY.iter().all(|one| directives.contains(one)), "{policy}");
            assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
            assert_eq!(part.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(part.header("referrer-policy"), Some("no-referrer"));
            assert_eq!(part.header("cache-control"), Some("no-cache"));
            bytes += part.body.len();
            let head = send(protocol, &address, "HEAD", path, &[], b"").await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            let refused = send(protocol, &address, "POST", path, &[], b"").await;
            assert_eq!(
                (refused.status, refused.header("allow")),
                (405, Some("GET, HEAD, OPTIONS"))
            );
        }
        assert!(bytes <= 60 << 10, "{bytes} bytes");
    }
}

/// The policy would refuse what these would load, run or keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_loads_nothing_from_elsewhere_and_stores_nothing() {
    let nodes = Nodes::start_all(1).await;
    let refused = [
        "http:",
        "https:",
        "url(",
        "@import",
        "<style",
        "style=",
        "<script>",
        "onclick=",
        "innerHTML",
        "eval(",
        "localStorage",
        "sessionStorage",
        "indexedDB",
        "cookie",
    ];
    for (path, _) in PARTS {
        let part = get(Protocol::Http1, &nodes.address(1), path).await;
        for text in refused {
            assert!(!part.text().contains(text), "{path} has {text}");
        }
    }
}

/// All alerts of Prometheus that one node sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_has_the_alerts_of_the_package() {
    let nodes = Nodes::start_all(1).await;
    let script = get(Protocol::Http1, &nodes.address(1), "/page.js").await;
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/alerts.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let summaries = rules.lines().filter_map(|line| line.trim().strip_prefix("summary: "));
    let summaries: Vec<_> = summaries.filter(|name| *name != "more than one cluster").collect();
    assert!(summaries.len() > 10);
    for summary in summaries {
        let name = format!("name: {summary:?}");
        assert!(script.text().contains(&name), "{summary}");
    }
}

/// On loopback changes need no token: a page whose name was made to resolve there could make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_another_origin_changes_nothing() {
    let nodes = Nodes::start_all(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let port = address.rsplit_once(':').unwrap().1;
    let (local, rebound) = (format!("localhost:{port}"), format!("{REBOUND_NAME}:{port}"));
    let (host, local, rebound) = (address.as_str(), local.as_str(), rebound.as_str());
    let site = |value| ("sec-fetch-site", value);
    // The host of the request, that of its origin, and its relation to the page.
    let cases = [
        (host, None, None, 200),
        (host, Some(host), None, 200),
        (host, Some(host), Some(site("same-origin")), 200),
        (local, Some(local), None, 200),
        (host, Some(local), None, 403),
        (host, Some("127.0.0.1:1"), None, 403),
        (host, Some(rebound), None, 403),
        (host, Some(host), Some(site("same-site")), 403),
        (host, Some(host), Some(site("cross-site")), 403),
        (host, None, Some(site("cross-site")), 403),
        (rebound, Some(rebound), None, 403),
        (rebound, Some(rebound), Some(site("same-origin")), 403),
        (rebound, None, None, 403),
    ];
    let body = json!({ "cluster": cluster, "nodeID": 1 }).to_string();
    for protocol in ALL {
        let scheme = if protocol == Protocol::Http3 { "https" } else { "http" };
        for (host, origin, site, status) in cases {
            let origin = origin.map(|origin| format!("{scheme}://{origin}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(origin.as_deref().map(|origin| ("origin", origin)));
            headers.extend(site);
            let to = (protocol, address.as_str(), host);
            let seen = send_to(to, "POST", "/cluster/transfer", &headers, body.as_bytes()).await;
            assert_eq!(seen.status, status, "{protocol:?} {host} {headers:?}: {}", seen.text());
            assert_eq!(seen.header("access-control-allow-origin"), None);
        }
        let seen = send_to((protocol, &address, rebound), "GET", "/members", &[], b"").await;
        assert_eq!(seen.status, 200, "reading is open");
    }
}

/// A token proves who asks, whatever the name of the node; and no other page has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_a_token_is_of_any_host_and_of_no_other_origin() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::none();
    let mut options = nodes.options(1);
    options.admin_token_file = Some(token_file(dir.path()));
    nodes.start_with(1, options).await.unwrap();
    nodes.timestamp(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let body = json!({ "cluster": cluster, "nodeID": 1 }).to_string();
    let (token, wrong) = (format!("Bearer {TOKEN}"), "Bearer another-token-of-16".to_owned());
    for (origin, token, status) in [
        ("http://node.example", Some(&token), 200),
        ("http://node.example", Some(&wrong), 401),
        ("http://node.example", None, 401),
        ("http://page.example", Some(&token), 403),
        ("null", Some(&token), 403),
    ] {
        let mut headers = vec![("content-type", "application/json"), ("origin", origin)];
        headers.extend(token.map(|token| ("authorization", token.as_str())));
        let to = (Protocol::Http1, address.as_str(), "node.example");
        let seen = send_to(to, "POST", "/cluster/transfer", &headers, body.as_bytes()).await;
        assert_eq!(seen.status, status, "{headers:?}: {}", seen.text());
    }
}

/// Starts a browser, or says that there is none.
fn start_browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        println!("SKIPPED: there is no chromium");
    }
    browser
}

const ROW_COUNT: &str = "document.querySelectorAll('#members tr').length";

/// The members, the figures, a new leader, and nodes that do not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_follows_the_leader_in_a_browser() {
    let Some(mut browser) = start_browser() else { return };
    let mut nodes = Nodes::start_all(3).await;
    let members = format!(
        "document.getElementById('leader').textContent.endsWith('leads: this node') && \
         {ROW_COUNT} === 3 && document.querySelectorAll('.answers').length === 3"
    );
    let leader = open_leader_page(&mut browser, &nodes, &members).await;
    let figures = "document.getElementById('rate').textContent !== '0' && \
                   document.getElementById('latency-99').textContent !== '–' && \
                   document.getElementById('sync-99').textContent !== '–'";
    let deadline = Instant::now() + 4 * TEST_TIMEOUT;
    while browser.evaluate(figures) != true {
        nodes.timestamp(leader).await;
        assert!(Instant::now() < deadline, "{}", browser.evaluate("document.body.innerText"));
    }

    // A page of a follower, while the leader goes.
    let leader = nodes.leader().await;
    let follower = leader % 3 + 1;
    browser.open(&format!("http://{}/", nodes.address(follower)));
    browser.wait_for(&format!("document.title.includes('node {follower}') && {ROW_COUNT} === 3"));
    nodes.stop(leader).await;
    let stopped = Instant::now();
    let other = format!("/^Node (?!{leader} )\\d+ leads/");
    let shown = "document.getElementById('leader').textContent";
    browser.wait_for(&format!("{other}.test({shown}) && {ROW_COUNT} === 3"));
    println!("the page showed the new leader {:?} after the last had stopped", stopped.elapsed());

    // The new leader knows that the last one is away.
    let is_shown = format!(
        "(document.querySelector('.away th')?.textContent ?? '').startsWith('node {leader} ') && \
         document.getElementById('alerts').textContent.includes('A node is away')"
    );
    let new = open_leader_page(&mut browser, &nodes, &is_shown).await;

    // The node of the page goes, and comes back.
    nodes.stop(new).await;
    let away = "document.getElementById('away').hidden";
    browser.wait_for(&format!("document.body.className === 'stale' && !{away}"));
    let mut options = nodes.options(new);
    options.join = None;
    nodes.start_with(new, options).await.unwrap();
    browser.wait_for(&format!("document.body.className === 'fresh' && {away}"));
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

/// Opens the page of the leader, and waits until an expression is true there. Leadership may move
/// meanwhile. Returns the leader.
async fn open_leader_page(browser: &mut Browser, nodes: &Nodes, expression: &str) -> u64 {
    let deadline = Instant::now() + 4 * TEST_TIMEOUT;
    let mut opened = None;
    loop {
        let leader = nodes.leader().await;
        if opened.replace(leader) != Some(leader) {
            browser.open(&format!("http://{}/", nodes.address(leader)));
        }
        if browser.evaluate(expression) == true {
            return leader;
        }
        assert!(Instant::now() < deadline, "{}", browser.evaluate("document.body.innerText"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// By keyboard alone. The page asks twice, and shows why a change is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_removes_a_node_with_the_token_in_a_browser() {
    let Some(mut browser) = start_browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::none();
    for node in 1..=3 {
        let mut options = nodes.options(node);
        options.admin_token_file = Some(token_file(dir.path()));
        // The browser beside it causes no election.
        options.round_trip = Duration::from_millis(500);
        nodes.start_with(node, options).await.unwrap();
    }
    let leader = nodes.wait_for_voters(3).await;
    let victim = leader % 3 + 1;
    browser.open(&format!("http://{}/", nodes.address(leader)));
    let label = format!("Remove: node {victim}");
    let button = format!("document.querySelector('[aria-label=\"{label}\"]')");
    browser.wait_for(&format!("{button}?.hidden === false"));
    let asks_again = "!document.getElementById('second').hidden";
    for (token, expected) in [("another-token-of-16", "Refused (401): "), (TOKEN, "")] {
        if browser.evaluate("document.getElementById('change').open") == false {
            browser.evaluate(&format!("{button}.focus()"));
            browser.press_enter();
        }
        browser.wait_for("document.activeElement.id === 'token'");
        browser.evaluate("document.getElementById('token').select()");
        browser.type_text(token);
        browser.press_enter();
        browser.wait_for(asks_again);
        browser.wait_for("document.activeElement.id === 'number'");
        // Another number than that of the node.
        browser.type_text("9");
        browser.press_enter();
        browser.wait_for_text("refusal", &format!("That is not the number {victim}."));
        assert_eq!(nodes.members(leader).await.members.len(), 3);
        browser.evaluate("document.getElementById('number').select()");
        browser.type_text(&victim.to_string());
        browser.press_enter();
        if expected.is_empty() {
            browser.wait_for("!document.getElementById('change').open");
        } else {
            let refusal = "document.getElementById('refusal').textContent";
            browser.wait_for(&format!("{refusal}.startsWith({expected:?})"));
            assert_eq!(nodes.members(leader).await.members.len(), 3);
        }
    }
    browser.wait_for(&format!("{ROW_COUNT} === 2"));
    nodes.stop(victim).await;
    assert_eq!(nodes.wait_for_voters(2).await, leader);
    let stored = "localStorage.length + sessionStorage.length + document.cookie.length";
    assert_eq!(browser.evaluate(stored), 0);
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

/// A name that was made to resolve to loopback, in a browser that takes it for the page's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_under_a_rebound_name_changes_nothing_in_a_browser() {
    let Some(mut browser) = start_browser() else { return };
    let nodes = Nodes::start_all(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let port = address.rsplit_once(':').unwrap().1;
    let change = |path: &str| {
        format!(
            "fetch({path:?}, {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, \
             body: JSON.stringify({{ cluster: {cluster:?}, nodeID: 1 }}) }})\
             .then((answer) => answer.status, () => 'no answer')"
        )
    };
    for (host, status) in [(address.clone(), 200), (format!("{REBOUND_NAME}:{port}"), 403)] {
        browser.open(&format!("http://{host}/"));
        browser.wait_for_text("leader", "Node 1 leads: this node");
        browser.wait_for(&format!("location.host === {host:?}"));
        assert_eq!(browser.evaluate(&change("/cluster/transfer")), status, "{host}");
    }
    // It may not even ask across origins, by its own policy.
    let across = change(&format!("http://{address}/cluster/transfer"));
    assert_eq!(browser.evaluate(&across), "no answer");
}
