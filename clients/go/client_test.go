package esker

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var discard = log.New(io.Discard, "", 0)

// short is a deadline that passes in a test.
const short = 300 * time.Millisecond

func TestAnswersWithoutTimestampsAreAskedForAgain(t *testing.T) {
	right := ranged(Range{Timestamp{7, 1}, 1}).body
	replies := []reply{
		status(500), status(502), status(404), status(405), status(204), status(302), status(401), status(403),
		{status: 409}, notLeader("http://127.0.0.1:1"), notLeader("127.0.0.1"), notLeader("0.0.0.0:80"),
		notLeader("a@127.0.0.1:80"), {status: 307}, {status: 503}, {status: 503, after: "0"},
		{status: 503, after: "soon"}, {status: 0}, {status: 200}, {status: 200, body: right[:23]},
		{status: 200, body: right[:16]}, {status: 200, body: append(right[:24:24], 0)},
		{status: 500, body: make([]byte, 1<<20)}, {status: 200, body: make([]byte, 1<<20)},
		ranged(Range{Timestamp{7, 1}, 2}), ranged(Range{Timestamp{7, 0}, 1}),
	}
	for _, wrong := range replies {
		node := scripted(t, new(issuer), wrong)
		expect(t, one(t, open(t, nil, node)), Timestamp{7, 1})
		expect(t, node.counts(), []int{1, 1})
		node.kill()
	}
}

func TestAnotherNodeIsAskedFirst(t *testing.T) {
	i := new(issuer)
	for _, wrong := range []reply{status(500), {status: 200}, {status: 409}, {status: 0}} {
		failing, right := start(t, always(wrong), nil), issuing(t, i)
		failing.lists(lists("", failing.addr, right.addr))
		client := open(t, nil, failing)
		one(t, client)
		one(t, client)
		expect(t, failing.counts(), []int{1})
		expect(t, right.counts(), []int{1, 1})
	}
}

func TestAnOverloadedNodeIsAskedLater(t *testing.T) {
	node := scripted(t, new(issuer), reply{status: 503, after: "1"})
	begun := time.Now()
	one(t, open(t, nil, node))
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it was asked again after %s", took)
	}
}

func TestARefusedRequestIsNotRepeated(t *testing.T) {
	node := scripted(t, new(issuer), reply{status: 400, body: []byte("invalid n param")})
	client := open(t, nil, node)
	_, err := client.Timestamp(context.Background())
	var failure *NodeError
	if !errors.Is(err, ErrRefused) || !errors.As(err, &failure) || failure.Addr != node.addr ||
		!strings.Contains(err.Error(), "invalid n param") {
		t.Error(err)
	}
	expect(t, node.counts(), []int{1})
	one(t, client)
}

func TestTheLeaderThatANodeNamesIsAsked(t *testing.T) {
	for _, code := range []int{409, 307} {
		i := new(issuer)
		leader := issuing(t, i)
		follower := start(t, always(reply{status: code, leader: leader.addr}), nil)
		client := open(t, nil, follower)
		for range 3 {
			one(t, client)
		}
		expect(t, follower.counts(), []int{1})
		expect(t, leader.counts(), []int{1, 1, 1})
		expect(t, leader.connections(), 1)
	}
}

func TestTheLeaderOfAListIsAsked(t *testing.T) {
	i := new(issuer)
	follower, leader := issuing(t, i), issuing(t, i)
	follower.lists(lists(leader.addr, follower.addr, leader.addr))
	one(t, open(t, nil, follower))
	expect(t, follower.counts(), []int{})
	expect(t, leader.counts(), []int{1})
}

// A list may have an address that clients cannot reach.
func TestALeaderThatCannotBeReachedWhereItSaysIsAskedWhereItCan(t *testing.T) {
	elsewhere := issuing(t, new(issuer))
	elsewhere.kill()
	node := issuing(t, new(issuer))
	node.lists(lists(elsewhere.addr, elsewhere.addr))
	one(t, open(t, nil, node))
}

func TestNodesThatNameOneAnotherAreNotAskedWithoutAWait(t *testing.T) {
	for _, toItself := range []bool{false, true} {
		a, b := issuing(t, new(issuer)), issuing(t, new(issuer))
		a.answers(always(notLeader(b.addr)))
		b.answers(always(notLeader(a.addr)))
		if toItself {
			a.answers(always(notLeader(a.addr)))
			b.answers(always(notLeader(b.addr)))
		}
		begun := time.Now()
		_, err := open(t, nil, a, b).Timestamp(within(t, short))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotLeader) {
			t.Error(err)
		}
		// Two names, the waits 4, 8, ... and 100 ms, of which half at least, and one more.
		most := 2 + 6 + int(time.Since(begun)/(50*time.Millisecond))
		if asked := len(a.counts()) + len(b.counts()); asked < 3 || asked > most {
			t.Errorf("%d requests of 3 to %d", asked, most)
		}
	}
}

func TestTheReasonOfTheLeaderIsNotHiddenByFollowers(t *testing.T) {
	leader := start(t, always(status(500)), nil)
	follower := start(t, always(notLeader(leader.addr)), nil)
	client := open(t, nil, leader, follower)
	_, err := client.Timestamp(within(t, short))
	var failure *NodeError
	if !errors.As(err, &failure) || failure.Addr != leader.addr || !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
	if len(follower.counts()) == 0 {
		t.Error("no follower was asked")
	}
}

// The leader is killed, and for a while no node leads. The client knows the other one from the list
// alone.
func TestAnElectionIsWaitedFor(t *testing.T) {
	i := new(issuer)
	leader, next := issuing(t, i), issuing(t, i)
	leader.lists(lists(leader.addr, leader.addr, next.addr))
	next.answers(always(notLeader(leader.addr)))
	client := open(t, nil, leader)
	var callers sync.WaitGroup
	killed := make(chan struct{})
	for range 20 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			var last Timestamp
			for calls, isOver := 0, false; calls < 50 || !isOver; calls++ {
				select {
				case <-killed:
					isOver = true
				default:
				}
				got, err := client.Timestamp(context.Background())
				if err != nil || got.Compare(last) <= 0 {
					t.Errorf("%v after %v: %v", got, last, err)
					return
				}
				last = got
				time.Sleep(time.Millisecond)
			}
		}()
	}
	time.Sleep(30 * time.Millisecond)
	leader.kill()
	time.Sleep(50 * time.Millisecond)
	next.answers(always(status(500)))
	time.Sleep(50 * time.Millisecond)
	next.answers(i.reply)
	close(killed)
	callers.Wait()
}

// Nodes close idle connections. That is no failure, and the leader is asked again at once.
func TestAConnectionThatWasClosedIsMadeAgain(t *testing.T) {
	i := new(issuer)
	leader, other := issuing(t, i), issuing(t, i)
	leader.lists(lists(leader.addr, leader.addr, other.addr))
	client := open(t, nil, leader)
	for range 3 {
		one(t, client)
		leader.cut()
		time.Sleep(50 * time.Millisecond)
	}
	expect(t, len(leader.counts())+len(other.counts()), 3)
}

func TestANodeWithoutAListOfMembersIsNotAsked(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, nil, node)
	for _, wrong := range []reply{status(200), status(503), {status: 200, body: []byte(`{"members": 7}`)},
		{status: 404, body: []byte(`{"members": []}`)}, {status: 200, body: make([]byte, 2<<20)}} {
		node.lists(wrong)
		_, err := client.Timestamp(within(t, short))
		if failure := (*NodeError)(nil); !errors.As(err, &failure) || failure.Addr != node.addr {
			t.Error(err)
		}
	}
	expect(t, node.counts(), []int{})
	node.lists(lists("", node.addr))
	one(t, client)
}

func TestANodeOfAnotherClusterIsNotAsked(t *testing.T) {
	i := new(issuer)
	own, other := issuing(t, i), issuing(t, i)
	own.lists(lists("", own.addr, other.addr))
	other.lists(listsOf("another", "", other.addr))
	client := open(t, nil, own)
	one(t, client)
	own.kill()
	eventually(t, "the failure of the other node", func() bool {
		_, err := client.Timestamp(within(t, short))
		return errors.Is(err, ErrOtherCluster)
	})
	expect(t, other.counts(), []int{})
	named := open(t, func(o *Options) { o.Cluster = "another" }, other)
	one(t, named)
}

// Another process may listen at the address of a node that ended.
func TestAnAddressThatMovedToAnotherClusterIsNotAsked(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, nil, node)
	one(t, client)
	node.lists(listsOf("another", "", node.addr))
	node.cut()
	eventually(t, "another cluster", func() bool {
		_, err := client.Timestamp(within(t, short))
		return errors.Is(err, ErrOtherCluster)
	})
	expect(t, node.counts(), []int{1})
}

func TestTheDeadlineHoldsWhereNothingAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dead := issuing(t, new(issuer))
	dead.kill()
	for _, addr := range []string{silent.Addr().String(), dead.addr} {
		for _, own := range []bool{false, true} {
			client := open(t, func(o *Options) {
				o.Endpoints = []string{"http://" + addr}
				if own {
					o.Timeout = short
				}
			})
			ctx := context.Background()
			if !own {
				ctx = within(t, short)
			}
			begun := time.Now()
			_, err := client.Timestamp(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) < short {
				t.Errorf("%v after %s", err, time.Since(begun))
			}
		}
	}
}

func TestACallThatHasPassedItsDeadlineSendsNothing(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, nil, node)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := client.Timestamp(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	one(t, client)
	expect(t, node.counts(), []int{1})
}

// Deadlines that are shorter than the waits between attempts, and than leaving a silent node.
func TestShortDeadlinesDoNotKeepAClientFromTheLeader(t *testing.T) {
	i := new(issuer)
	a, b := issuing(t, i), issuing(t, i)
	for _, node := range []*fake{a, b} {
		node.lists(lists("", a.addr, b.addr))
		node.answers(always(status(500)))
	}
	client := open(t, nil, a)
	served := func() bool {
		_, err := client.Timestamp(within(t, 20*time.Millisecond))
		return err == nil
	}
	for begun := time.Now(); time.Since(begun) < short; {
		if served() {
			t.Fatal("no node leads")
		}
	}
	stop := make(chan struct{})
	defer close(stop)
	a.answers(func(int) reply { <-stop; return status(500) })
	b.answers(i.reply)
	eventually(t, "an answer of the second node", served)
}

func TestANodeThatFallsSilentIsLeft(t *testing.T) {
	i := new(issuer)
	stop := make(chan struct{})
	defer close(stop)
	silent, right := issuing(t, i), issuing(t, i)
	silent.lists(lists("", silent.addr, right.addr))
	client := open(t, nil, silent)
	one(t, client)
	silent.answers(func(int) reply { <-stop; return status(500) })
	one(t, client)
	expect(t, right.counts(), []int{1})
}

// held is a node whose answers wait, and were decided before.
func held(t *testing.T, i *issuer) (node *fake, release func()) {
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	node = start(t, func(n int) reply {
		answer := i.reply(n)
		<-released
		return answer
	}, nil)
	t.Cleanup(release)
	return node, release
}

// call calls in the background.
func call(client *Client, n int) <-chan Range {
	got := make(chan Range, 1)
	go func() {
		r, _ := client.Timestamps(context.Background(), n)
		got <- r
	}()
	return got
}

func TestACallJoinsNoRequestThatWasSent(t *testing.T) {
	i := new(issuer)
	node, release := held(t, i)
	client := open(t, nil, node)
	first := call(client, 1)
	eventually(t, "the first request", func() bool { return len(node.counts()) == 1 })
	before := i.take(1).First
	second := call(client, 1)
	eventually(t, "the second request", func() bool { return len(node.counts()) == 2 })
	third := call(client, 1)
	release()
	a, b, c := (<-first).First, (<-second).First, (<-third).First
	if a.Compare(before) >= 0 || b.Compare(before) <= 0 || c.Compare(b) <= 0 {
		t.Errorf("%v, %v and %v, and %v came after the first", a, b, c, before)
	}
}

func TestCallersShareRequestsAndTwoAreInFlight(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, nil, node)
	var calls []<-chan Range
	for want := 1; want <= 2; want++ {
		calls = append(calls, call(client, 1))
		eventually(t, "a request", func() bool { return len(node.counts()) == want })
	}
	for range 100 {
		calls = append(calls, call(client, 3))
	}
	eventually(t, "callers that wait", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.waiting == 100
	})
	expect(t, node.counts(), []int{1, 1})
	release()
	seen := map[Timestamp]bool{}
	for _, each := range calls {
		r := <-each
		for at := range r.Count {
			seen[r.At(at)] = true
		}
	}
	expect(t, len(seen), 302)
	expect(t, node.counts(), []int{1, 1, 300})
}

func TestNoRequestIsAboveTheBound(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, func(o *Options) { o.MaxTimestamps = 10 }, node)
	var calls []<-chan Range
	for n := range 10 {
		calls = append(calls, call(client, n+1), call(client, n+1))
	}
	for at, each := range calls {
		expect(t, (<-each).Count, at/2+1)
	}
	sum := 0
	for _, n := range node.counts() {
		if sum += n; n > 10 {
			t.Errorf("a request for %d", n)
		}
	}
	expect(t, sum, 110)
	for _, n := range []int{-1, 0, 11} {
		if _, err := client.Timestamps(context.Background(), n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestMoreCallersThanTheQueueTakesAreRefused(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, func(o *Options) { o.Queue = 5 }, node)
	var calls []<-chan Range
	for want := 1; want <= 2; want++ {
		calls = append(calls, call(client, 1))
		eventually(t, "a request", func() bool { return len(node.counts()) == want })
	}
	for range 5 {
		calls = append(calls, call(client, 1))
	}
	eventually(t, "callers that wait", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.waiting == 5
	})
	if _, err := client.Timestamp(context.Background()); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	release()
	for _, each := range calls {
		expect(t, (<-each).Count, 1)
	}
	one(t, client)
}

func TestTheTimestampsOfACancelledCallAreLost(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, nil, node)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := client.Timestamps(ctx, 5)
		ended <- err
	}()
	eventually(t, "the request", func() bool { return len(node.counts()) == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
	expect(t, one(t, client), Timestamp{7, 6})
}

// A batch that all callers have left is not sent.
func TestCallersThatLeaveSendNothing(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, nil, node)
	calls := []<-chan Range{call(client, 1)}
	eventually(t, "a request", func() bool { return len(node.counts()) == 1 })
	calls = append(calls, call(client, 1))
	eventually(t, "a request", func() bool { return len(node.counts()) == 2 })
	for range 10 {
		if _, err := client.Timestamps(within(t, time.Millisecond), 60_000); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	release()
	for _, each := range calls {
		<-each
	}
	one(t, client)
	expect(t, node.counts(), []int{1, 1, 1})
}

func TestATimestampThatIsNotAboveTheLastIsAnError(t *testing.T) {
	i := new(issuer)
	node := issuing(t, i)
	client := open(t, nil, node)
	r, err := client.Timestamps(context.Background(), 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, lower := range []Timestamp{{7, 1}, r.Last(), {6, 100}} {
		node.answers(always(ranged(Range{lower, 1})))
		_, err := client.Timestamp(context.Background())
		if !errors.Is(err, ErrNotMonotonic) || !strings.Contains(err.Error(), node.addr) {
			t.Error(err)
		}
	}
	node.answers(i.reply)
	if got := one(t, client); got.Compare(r.Last()) <= 0 {
		t.Errorf("%v after %v", got, r.Last())
	}
}

func TestAListIsAskedForAndRead(t *testing.T) {
	i := new(issuer)
	node := start(t, func(n int) (answer reply) {
		answer.status = 200
		for at, r := 0, i.take(n); at < n; at++ {
			b := r.At(at).Bytes()
			answer.body = append(answer.body, b[:]...)
		}
		return answer
	}, nil)
	client := open(t, func(o *Options) { o.List = true }, node)
	for _, n := range []int{1, 3, 65_536} {
		r, err := client.Timestamps(context.Background(), n)
		if err != nil || r.Count != n {
			t.Errorf("%v: %v", r, err)
		}
	}
	expect(t, node.queries, []string{"/timestamp?n=1", "/timestamp?n=3", "/timestamp?n=65536"})
}

func TestAClosedClientEndsItsCalls(t *testing.T) {
	node, _ := held(t, new(issuer))
	client := open(t, nil, node)
	ended := make(chan error)
	for range 5 {
		go func() {
			_, err := client.Timestamp(context.Background())
			ended <- err
		}()
	}
	eventually(t, "two requests", func() bool { return len(node.counts()) == 2 })
	client.Close()
	for range 5 {
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := client.Timestamp(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestUnusableOptionsAreRefused(t *testing.T) {
	for _, wrong := range []Options{
		{},
		{Endpoints: []string{"127.0.0.1:1"}},
		{Endpoints: []string{"ftp://127.0.0.1:1"}},
		{Endpoints: []string{"http://127.0.0.1"}},
		{Endpoints: []string{"http://127.0.0.1:0"}},
		{Endpoints: []string{"http://127.0.0.1:1/path"}},
		{Endpoints: []string{"http://user@127.0.0.1:1"}},
		{Endpoints: []string{"http://127.0.0.1:1", "https://127.0.0.1:2"}},
		{Endpoints: slices.Repeat([]string{"http://127.0.0.1:1"}, 65)},
		{Endpoints: []string{"http://127.0.0.1:1"}, CAFile: "ca.pem"},
		{Endpoints: []string{"https://127.0.0.1:1"}, CAFile: "no such file"},
		{Endpoints: []string{"https://127.0.0.1:1"}, CAFile: "client.go"},
		{Endpoints: []string{"https://127.0.0.1:1"}, CertFile: "client.go"},
		{Endpoints: []string{"https://127.0.0.1:1"}, KeyFile: "client.go"},
		{Endpoints: []string{"http://127.0.0.1:1"}, MaxTimestamps: 65_537},
		{Endpoints: []string{"http://127.0.0.1:1"}, MaxTimestamps: -1},
		{Endpoints: []string{"http://127.0.0.1:1"}, Queue: -1},
		{Endpoints: []string{"http://127.0.0.1:1"}, Timeout: -1},
		{Endpoints: []string{"http://127.0.0.1:1"}, ConnectTimeout: -1},
	} {
		if _, err := New(wrong); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// Two clients of two nodes that fail, name one another, lose answers and are slow at random, and
// calls that are given up: what is returned is unique, and above what was returned before its call.
func TestHistoriesAreUniqueAndInOrder(t *testing.T) {
	i := new(issuer)
	nodes := []*fake{issuing(t, i), issuing(t, i)}
	for at, node := range nodes {
		node.lists(lists("", nodes[0].addr, nodes[1].addr))
		node.answers(func(n int) reply {
			answer := i.reply(n)
			time.Sleep(rand.N(2 * time.Millisecond))
			switch rand.IntN(30) {
			case 0:
				return status(500)
			case 1:
				return notLeader(nodes[1-at].addr)
			case 2:
				return reply{status: 503, after: "0"}
			case 3:
				return reply{status: 200, body: answer.body[:20]}
			case 4:
				return reply{}
			}
			return answer
		})
	}
	type returned struct {
		highest Timestamp // that any call had returned when this one began
		got     Range
	}
	var (
		mu      sync.Mutex
		highest Timestamp
		calls   []returned
		tasks   sync.WaitGroup
	)
	clients := []*Client{open(t, nil, nodes[0]), open(t, nil, nodes[1])}
	for task := range 40 {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			for range 30 {
				timeout := patience
				if rand.IntN(8) == 0 {
					timeout = rand.N(1500 * time.Microsecond)
				}
				mu.Lock()
				before := highest
				mu.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				got, err := clients[task%2].Timestamps(ctx, 1+rand.IntN(5))
				cancel()
				mu.Lock()
				if err == nil {
					calls = append(calls, returned{before, got})
					if got.Last().Compare(highest) > 0 {
						highest = got.Last()
					}
				} else if timeout == patience {
					t.Error(err)
				}
				mu.Unlock()
			}
		}()
	}
	tasks.Wait()
	seen := map[Timestamp]bool{}
	for _, each := range calls {
		if each.got.First.Compare(each.highest) <= 0 {
			t.Errorf("%v was returned before the call of %v", each.highest, each.got)
		}
		for at := range each.got.Count {
			if seen[each.got.At(at)] {
				t.Errorf("%v was returned twice", each.got.At(at))
			}
			seen[each.got.At(at)] = true
		}
	}
	if len(calls) < 900 {
		t.Errorf("%d calls", len(calls))
	}
}

// Callers that have left do not count as callers that wait.
func TestCallersThatLeaveMakeRoomInTheQueue(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, func(o *Options) { o.Queue = 3 }, node)
	var calls []<-chan Range
	for want := 1; want <= 2; want++ {
		calls = append(calls, call(client, 1))
		eventually(t, "a request", func() bool { return len(node.counts()) == want })
	}
	for range 10 {
		if _, err := client.Timestamp(within(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	calls = append(calls, call(client, 1))
	release()
	for _, each := range calls {
		expect(t, (<-each).Count, 1)
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	expect(t, client.waiting, 0)
}
