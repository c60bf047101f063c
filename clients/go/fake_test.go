package esker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what happens at once on an idle machine.
const patience = 2 * time.Minute

const testCluster = "0123456789abcdef0123456789abcdef"

// reply is an answer of a fake node.
type reply struct {
	status int
	leader string
	after  string // Retry-After
	body   []byte
	issued *Range // for answers of 64 bits
}

// issuer hands out the indexes of one epoch.
type issuer struct {
	mu   sync.Mutex
	next uint64
}

func (i *issuer) take(n int) Range {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := Range{Timestamp{7, i.next + 1}, n}
	i.next += uint64(n)
	return r
}

func (i *issuer) reply(n int) reply { return ranged(i.take(n)) }

func ranged(r Range) reply {
	b := r.First.Bytes()
	return reply{status: 200, body: binary.BigEndian.AppendUint64(b[:], uint64(r.Count)), issued: &r}
}

func ranged64(first uint64, count int) reply {
	body := binary.BigEndian.AppendUint64(nil, first)
	return reply{status: 200, body: binary.BigEndian.AppendUint64(body, uint64(count))}
}

func notLeader(leader string) reply {
	return reply{status: 409, leader: leader, body: []byte("node (1) is not the leader (2)")}
}

func always(r reply) func(int) reply { return func(int) reply { return r } }

func status(code int) reply { return reply{status: code, body: []byte("as the test has it")} }

// fake is a node that answers as a test wants it.
type fake struct {
	server *httptest.Server
	addr   string

	mu      sync.Mutex
	script  func(n int) reply
	members reply
	asked   []int // the counts of the requests for timestamps
	queries []string
	conns   map[net.Conn]bool
	opened  int
}

// start starts a node, and configure may change its server before.
func start(t testing.TB, script func(n int) reply, configure func(*httptest.Server)) *fake {
	t.Helper()
	f := &fake{script: script, conns: map[net.Conn]bool{}}
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ErrorLog = discard
	f.server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch state {
		case http.StateNew:
			f.opened++
			f.conns[conn] = true
		case http.StateClosed:
			delete(f.conns, conn)
		}
	}
	f.addr = f.server.Listener.Addr().String()
	f.members = lists("", f.addr)
	if configure != nil {
		configure(f.server)
	} else {
		f.server.Config.Protocols = new(http.Protocols)
		f.server.Config.Protocols.SetUnencryptedHTTP2(true)
		f.server.Start()
	}
	t.Cleanup(f.kill)
	return f
}

func issuing(t testing.TB, i *issuer) *fake {
	t.Helper()
	return start(t, i.reply, nil)
}

// scripted answers the first requests with these.
func scripted(t testing.TB, i *issuer, first ...reply) *fake {
	t.Helper()
	var mu sync.Mutex
	return start(t, func(n int) reply {
		mu.Lock()
		defer mu.Unlock()
		if len(first) == 0 {
			return i.reply(n)
		}
		next := first[0]
		first = first[1:]
		return next
	}, nil)
}

// lists is a list of members. An empty leader is null.
func lists(leader string, all ...string) reply { return listsOf(testCluster, leader, all...) }

func listsOf(cluster, leader string, all ...string) reply {
	type named struct {
		NodeID int    `json:"nodeID"`
		Addr   string `json:"addr"`
	}
	list := struct {
		Cluster string  `json:"cluster"`
		Leader  *named  `json:"leader"`
		Members []named `json:"members"`
	}{Cluster: cluster, Members: []named{}}
	if leader != "" {
		list.Leader = &named{1, leader}
	}
	for i, addr := range all {
		list.Members = append(list.Members, named{i + 1, addr})
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return reply{status: 200, body: body}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	answer, script := f.members, f.script
	isMembers := r.URL.Path == "/members"
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if !isMembers {
		f.asked = append(f.asked, n)
		f.queries = append(f.queries, r.URL.RequestURI())
	}
	f.mu.Unlock()
	if !isMembers {
		if err != nil || r.URL.Path != "/timestamp" {
			panic(r.URL.String())
		}
		answer = script(n)
	}
	if r.URL.Query().Get("format") == "u64-range" && answer.issued != nil {
		answer.body = ranged64(answer.issued.First.bits(), answer.issued.Count).body
	}
	if answer.status == 0 {
		panic(http.ErrAbortHandler) // the answer is lost
	}
	if answer.leader != "" {
		w.Header().Set("Esker-Leader", answer.leader)
	}
	if answer.after != "" {
		w.Header().Set("Retry-After", answer.after)
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body)
}

func (f *fake) answers(script func(n int) reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = script
}

func (f *fake) lists(members reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = members
}

func (f *fake) counts() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int{}, f.asked...)
}

// forms returns the formats of the requests.
func (f *fake) forms() (forms []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, query := range f.queries {
		_, form, _ := strings.Cut(query, "&")
		forms = append(forms, form)
	}
	return forms
}

func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// cut ends its connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
}

// kill ends it and its connections. It may be killed twice.
func (f *fake) kill() {
	f.server.Listener.Close()
	f.cut()
	f.server.Close()
}

// open returns a client of these nodes.
func open(t testing.TB, change func(*Options), nodes ...*fake) *Client {
	t.Helper()
	options := Options{Timeout: patience}
	for _, node := range nodes {
		options.Endpoints = append(options.Endpoints, "http://"+node.addr)
	}
	if change != nil {
		change(&options)
	}
	client, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// one returns a timestamp, or ends the test.
func one(t testing.TB, client *Client) Timestamp {
	t.Helper()
	got, err := client.Timestamp(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// within returns a context with a deadline.
func within(t testing.TB, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("it never came: " + what)
		}
	}
}

// expect compares what is printed.
func expect(t testing.TB, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, not %v", got, want)
	}
}
