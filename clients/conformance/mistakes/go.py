"""Mistakes in the Go client: texts of its source, and what takes their place in a build of its
driver. The source itself stays as it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

GO = Path(__file__).parents[2] / "go"

Edit = tuple[str, str, str]

_ASK_AHEAD = ("client.go", "got := s.timestamps(c.ctx, n,", "got := s.timestamps(c.ctx, n+64,")
_SERVER_NAME = "config.ServerName, _, _ = net.SplitHostPort(addr)"

# For each mistake a file, a text that it has once, and the text in its place.
EDITS: dict[str, list[Edit]] = {
    "ignores_deadlines": [
        ("client.go", "\tcase <-ctx.Done():\n", ""),
        ("client.go", "cmp.Or(c.ctx.Err(), ctx.Err()) != nil", "c.ctx.Err() != nil"),
    ],
    "retries_without_a_wait": [
        ("client.go", "got.wait + c.delay/2 + rand.N(c.delay/2)", "got.wait"),
    ],
    "gives_up_after_a_failure": [
        (
            "client.go",
            "\t\tc.fail(s.addr, got)\n\t\treturn nil\n",
            "\t\tc.fail(s.addr, got)\n\t\treturn &step{err: &NodeError{s.addr, got.err}}\n",
        ),
    ],
    "repeats_what_was_refused": [
        ("client.go", "case errors.Is(got.err, ErrRefused):", "case got.err == ErrInvalid:"),
    ],
    "follows_names_for_ever": [
        ("client.go", " || got.leader == addr || got.leader == c.failed {", " {"),
        ("client.go", "c.hints <= hintsMax {", "c.hints <= 1<<30 {"),
    ],
    "follows_urls": [
        (
            "protocol.go",
            "\tconst letters",
            '\taddr = strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")\n'
            '\taddr = addr[strings.Index(addr, "@")+1:]\n\tconst letters',
        ),
    ],
    "waits_for_an_answer_for_ever": [
        ("node.go", "= 1500 * time.Millisecond", "= 1000 * time.Hour"),
    ],
    "interrupts_connecting": [
        ("client.go", "c.ctx, c.options.ConnectTimeout,", "c.ctx, 200*time.Millisecond,"),
    ],
    "mixes_two_clusters": [
        (
            "client.go",
            "cmp.Or(s.Cluster, c.cluster) != cmp.Or(c.cluster, s.Cluster)",
            'c.cluster == "none"',
        ),
    ],
    "accepts_malformed_answers": [
        ("protocol.go", "return r.First, ok &&", "return r.First, true || ok &&"),
    ],
    "accepts_what_went_backwards": [
        ("client.go", "case !got.isAbove(highest):", "case n < 0:"),
    ],
    "joins_a_sent_request": [
        _ASK_AHEAD,
        ("client.go", "b == nil || b.isSent || b.ctx", "b == nil || b.ctx"),
    ],
    "keeps_left_over_timestamps": [
        _ASK_AHEAD,
        (
            "client.go",
            "\tdelay                time",
            "\tleft                 Range\n\tdelay time",
        ),
        (
            "client.go",
            "\tb, offset, err := c.join(ctx, n, form)\n",
            "\tc.mu.Lock()\n\tif left := c.left; left.Count >= n {\n"
            "\t\tc.left = Range{left.At(n), left.Count - n}\n\t\tc.mu.Unlock()\n"
            "\t\treturn left.First, nil\n\t}\n\tc.mu.Unlock()\n"
            "\tb, offset, err := c.join(ctx, n, form)\n",
        ),
        (
            "client.go",
            "\tif c.last = nil;",
            "\tc.left = Range{Range{got.first, n}.At(n), 64}\n\tif c.last = nil;",
        ),
    ],
    "sends_a_request_for_each_caller": [
        ("client.go", "if b == nil || b.isSent", "if true || b == nil || b.isSent"),
    ],
    "queues_without_a_bound": [
        ("client.go", "case c.waiting >= c.options.Queue:", "case c.waiting < 0:"),
    ],
    "cancels_the_callers_of_a_request": [
        ("client.go", "if b.callers--; b.callers == 0 {", "if b.callers--; b.callers >= 0 {"),
    ],
    "does_not_verify_hosts": [
        (
            "node.go",
            _SERVER_NAME,
            "roots := config.RootCAs\n\t\tconfig.InsecureSkipVerify = true\n"
            "\t\tconfig.VerifyConnection = func(state tls.ConnectionState) error {\n"
            "\t\t\toptions := x509.VerifyOptions{Roots: roots}\n"
            "\t\t\t_, err := state.PeerCertificates[0].Verify(options)\n"
            "\t\t\treturn err\n\t\t}",
        ),
    ],
    "does_not_verify_certificates": [
        ("node.go", _SERVER_NAME, "config.InsecureSkipVerify = true"),
    ],
    "falls_back_to_plain": [
        ("node.go", 'return s, fmt.Errorf("%w: %w", ErrTLS, err)', "return dial(ctx, addr, nil)"),
    ],
    "reads_files_once": [
        ("client.go", "c.tls != nil && err == nil {", "c.tls == nil && err == nil {"),
    ],
    "has_an_order_for_each_width": [
        (
            "protocol.go",
            "s.first.Epoch, other.first.Epoch = "
            "s.first.Epoch/nanosPerMillisecond, other.first.Epoch/nanosPerMillisecond",
            "return true",
        ),
    ],
    "shares_requests_between_widths": [
        ("client.go", "b := c.newest[form]", 'b := c.newest[""]'),
        ("client.go", "c.newest[form] = b", 'c.newest[""] = b'),
    ],
    "counts_callers_that_have_left": [
        ("client.go", "\tif !b.isSent {\n", "\tif b.count < 0 {\n"),
    ],
    "sends_no_ping": [
        ("node.go", "SendPingTimeout: pingInterval, ", ""),
    ],
    "goes_back_to_a_failed_leader": [
        ("client.go", " || got.leader == c.failed {", " {"),
    ],
    "takes_options_out_of_bounds": [
        ("client.go", " || o.MaxTimestamps > countMax:", ":"),
    ],
    "compares_with_later_answers": [
        ("client.go", "case !got.isAbove(highest):", "case !got.isAbove(c.highest):"),
    ],
}


async def build(mistake: str, folder: Path) -> list[str]:
    """Builds the driver with a mistake, and returns its command."""
    sources: dict[str, str] = {}
    for name, before, after in EDITS[mistake]:
        source = sources.get(name) or (GO / name).read_text()
        if source.count(before) != 1:
            raise ValueError(f"{mistake}: {name} has no such text, or more than one: {before}")
        sources[name] = source.replace(before, after)
    replaced = {}
    for name, source in sources.items():
        edited = folder / f"{mistake}-{name}"
        edited.write_text(source)
        replaced[str(GO / name)] = str(edited)
    overlay, driver = folder / f"{mistake}.json", folder / mistake
    overlay.write_text(json.dumps({"Replace": replaced}))
    words = ["go", "build", "-overlay", str(overlay), "-o", str(driver), "./conformance"]
    process = await asyncio.create_subprocess_exec(*words, cwd=GO)
    if await process.wait() != 0:
        raise ValueError(f"{mistake}: go build failed")
    return [str(driver)]
