// Package esker is a client of Esker's timestamp service, whose timestamps are unique and ordered for
// the life of a cluster.
package esker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	inFlightMax   = 2                    // requests
	yieldsMax     = 64                   // of a request, to callers that are ready to join it
	retryDelay    = 4 * time.Millisecond // after the first failure; it doubles with each
	retryDelayMax = 100 * time.Millisecond
	hintsMax      = 2  // leaders that are followed in a row without a wait
	nodesMax      = 64 // endpoints, or members
)

// Client follows the leader of a cluster. Use one in a process: concurrent callers share requests.
//
// A timestamp comes from a request that was sent after its call began: a call that begins after
// another one returned gets a higher timestamp, with any client. No timestamp is kept for later:
// those of a call that was cancelled are lost.
type Client struct {
	options  Options
	ctx      context.Context
	stop     context.CancelCauseFunc
	inFlight chan struct{}

	dialing sync.Mutex  // held to wait and connect: all requests need the same connection
	tls     *tls.Config // of files that could be used; guarded by dialing

	mu      sync.Mutex
	newest  *batch
	waiting int        // callers of batches that were not sent
	highest Timestamp  // that was received
	last    *NodeError // since the last success
	cluster string
	node    *node     // the leader, as far as is known
	retryAt time.Time // when the next request may be sent

	endpoints, members []string
	next, failed       string // the node to ask before the others, and the last one that failed
	turn               int
	failures, hints    int // since the last success
}

// batch is callers that share a request.
type batch struct {
	ctx    context.Context // done with the answer, by the timeout, and when all callers have left
	cancel context.CancelFunc
	begun  time.Time
	answer atomic.Pointer[step] // set before ctx is done, if there is one
	isSent bool                 // no caller joins any longer
	// The timestamps of all that have joined, their number, and that of those who have not left.
	count, joined, callers int
}

// New returns a client, which connects with its first call.
func New(options Options) (*Client, error) {
	addrs, config, err := options.check()
	if err != nil {
		return nil, err
	}
	c := &Client{options: options, tls: config, cluster: options.Cluster, endpoints: addrs,
		turn: rand.IntN(len(addrs)), inFlight: make(chan struct{}, inFlightMax)}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	return c, nil
}

// Close ends the client, and its calls with ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop(ErrClosed)
	c.leaveNode()
	return nil
}

// Timestamp returns one timestamp, as Timestamps does.
func (c *Client) Timestamp(ctx context.Context) (Timestamp, error) {
	r, err := c.Timestamps(ctx, 1)
	return r.First, err
}

// Timestamps returns n timestamps of one epoch. It asks nodes until ctx is done or Options.Timeout
// has passed; ErrInvalid, ErrBusy, ErrRefused, ErrNotMonotonic and ErrClosed end it at once.
func (c *Client) Timestamps(ctx context.Context, n int) (Range, error) {
	b, offset, err := c.join(ctx, n)
	if err != nil {
		return Range{}, err
	}
	select {
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	if got := b.answer.Load(); got != nil {
		return Range{Range{First: got.first}.At(offset), n}, got.err
	}
	return Range{}, c.leave(b, cmp.Or(ctx.Err(), context.Cause(b.ctx)))
}

// join adds a caller to the newest batch, at an offset.
func (c *Client) join(ctx context.Context, n int) (*batch, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch most := c.options.MaxTimestamps; {
	case n < 1 || n > most:
		return nil, 0, fmt.Errorf("%w: %d timestamps of 1 to %d", ErrInvalid, n, most)
	case c.ctx.Err() != nil:
		return nil, 0, ErrClosed
	case ctx.Err() != nil:
		return nil, 0, fmt.Errorf("esker: no timestamps: %w", ctx.Err())
	case c.waiting >= c.options.Queue:
		return nil, 0, ErrBusy
	}
	b := c.newest
	// Callers that begin at about the same time share a timer.
	if b == nil || b.isSent || b.ctx.Err() != nil || b.count > c.options.MaxTimestamps-n ||
		time.Since(b.begun) > c.options.Timeout/512 {
		b = &batch{begun: time.Now()}
		b.ctx, b.cancel = context.WithTimeout(c.ctx, c.options.Timeout)
		c.newest = b
		go c.send(b)
	}
	c.waiting++
	b.count, b.joined, b.callers = b.count+n, b.joined+1, b.callers+1
	return b, b.count - n, nil
}

// leave removes a caller that has no answer, and returns its error.
func (c *Client) leave(b *batch, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.callers--; b.callers == 0 {
		b.cancel()
	}
	if c.last == nil {
		return fmt.Errorf("esker: no timestamps: %w", cause)
	}
	return fmt.Errorf("esker: no timestamps: %w; last failure: %w", cause, c.last)
}

// send asks for the timestamps of a batch, when there is room in flight, until there is an answer.
func (c *Client) send(b *batch) {
	defer b.cancel()
	c.inFlight <- struct{}{}
	defer func() { <-c.inFlight }()
	c.mu.Lock()
	for yields, joined := 0, 0; yields < yieldsMax && joined != b.joined; yields++ {
		joined = b.joined
		c.mu.Unlock()
		runtime.Gosched() // to callers that the last answer has woken
		c.mu.Lock()
	}
	b.isSent = true
	c.waiting -= b.joined
	c.mu.Unlock()
	// Deadlines of callers do not interrupt an attempt: short ones would start connecting over, again
	// and again.
	for b.ctx.Err() == nil {
		if got := c.attempt(b.count); got.err != errAgain {
			b.answer.Store(&got)
			return
		}
	}
}

// attempt asks one node once.
func (c *Client) attempt(n int) step {
	// The highest timestamp before the request is sent: another answer may be above this one.
	s, highest := c.connect()
	if s == nil {
		return step{err: errAgain}
	}
	got := s.timestamps(c.ctx, n, c.options.List)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.err == nil && got.first.Compare(highest) <= 0:
		return step{err: fmt.Errorf("%w: %s, %v after %v", ErrNotMonotonic, s.addr, got.first, highest)}
	case got.err == nil:
		if last := (Range{got.first, n}).Last(); last.Compare(c.highest) > 0 {
			c.highest = last
		}
		if c.last = nil; c.node == s {
			c.failed, c.failures, c.hints = "", 0, 0
		}
		return got
	case errors.Is(got.err, ErrRefused):
		return step{err: &NodeError{s.addr, got.err}}
	case c.node == s: // unless another request has failed there before
		c.fail(s.addr, got)
	}
	return step{err: errAgain}
}

// fail leaves a node after a failure, and sets the time of the next attempt.
func (c *Client) fail(addr string, got step) {
	if !got.stays {
		c.leaveNode()
	}
	// That a node does not lead says less than what the leader answered.
	if got.err != ErrNotLeader || c.last == nil {
		c.last = &NodeError{addr, got.err}
	}
	if got.leader == "" || got.leader == addr || got.leader == c.failed {
		c.failed = addr
	} else {
		c.next = got.leader
		if c.hints++; c.hints <= hintsMax {
			return
		}
	}
	delay := min(retryDelay<<min(c.failures, 10), retryDelayMax)
	c.failures++
	c.retryAt = time.Now().Add(got.wait + delay/2 + rand.N(delay/2))
}

func (c *Client) leaveNode() {
	if c.node != nil {
		c.node.conn.Close()
		c.node = nil
	}
}

// connect returns the connection to the leader, or tries once to make one, and the highest timestamp.
func (c *Client) connect() (*node, Timestamp) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	c.mu.Lock()
	retryAt := c.retryAt
	c.mu.Unlock()
	time.Sleep(time.Until(retryAt))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != nil && c.node.hasEnded() { // no failure: nodes close idle connections
		c.next = c.node.addr
		c.leaveNode()
	}
	if c.node != nil || c.ctx.Err() != nil {
		return c.node, c.highest
	}
	known := slices.Concat(c.endpoints, c.members)
	if c.turn++; known[c.turn%len(known)] == c.failed {
		c.turn++
	}
	addr := cmp.Or(c.next, known[c.turn%len(known)])
	c.next = ""
	c.mu.Unlock()
	if config, err := c.options.tlsConfig(); c.tls != nil && err == nil {
		c.tls = config
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.options.ConnectTimeout, ErrNoAnswer)
	defer cancel()
	s, list, err := dial(ctx, addr, c.tls)
	c.mu.Lock()
	c.node, c.cluster = s, cmp.Or(c.cluster, list.Cluster)
	if err = cmp.Or(context.Cause(ctx), err); err == nil && list.Cluster != "" && list.Cluster != c.cluster {
		err = fmt.Errorf("%w: %.64q", ErrOtherCluster, list.Cluster)
	}
	if err != nil {
		c.fail(addr, step{err: err})
		return nil, c.highest
	}
	c.members = nil
	for _, member := range list.Members[:min(len(list.Members), nodesMax)] {
		if addr := checked(member.Addr, false); addr != "" && !slices.Contains(c.endpoints, addr) {
			c.members = append(c.members, addr)
		}
	}
	leader := checked(list.Leader.Addr, false)
	// Not one that has just failed: clients may reach it at another address only.
	if leader != "" && leader != addr && leader != c.failed && c.hints < hintsMax {
		c.hints, c.next = c.hints+1, leader
		c.leaveNode()
	}
	return c.node, c.highest
}
