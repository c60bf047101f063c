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
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	inFlightMax = 2 // requests
	yields      = 4 // of a request, to callers that are about to join it
	// After the first failure; it doubles with each.
	retryDelayMin, retryDelayMax = 4 * time.Millisecond, 100 * time.Millisecond
	hintsMax                     = 2  // leaders that are followed in a row without a wait
	nodesMax                     = 64 // endpoints, or members
)

// Errors of New and of calls. A call without timestamps in time fails with context.DeadlineExceeded
// or context.Canceled; it wraps the NodeError of the last attempt that failed, if one did.
var (
	ErrInvalid      = errors.New("esker: invalid") // an option or a count; nothing was sent
	ErrBusy         = errors.New("esker: too many callers wait")
	ErrRefused      = errors.New("esker: the service refuses the request") // in a NodeError
	ErrNotMonotonic = errors.New("esker: the cluster lost its data, or is another one")
	ErrClosed       = errors.New("esker: the client is closed")

	// Causes of a NodeError, beside errors of connections.
	ErrNotLeader    = errors.New("the node does not lead")
	ErrOtherCluster = errors.New("the node is of another cluster")
	ErrTLS          = errors.New("no TLS connection") // wraps the reason, as of crypto/x509
	ErrNoAnswer     = errors.New("no answer in time") // the timestamps of the request are lost
	ErrAnswer       = errors.New("no timestamps in the answer")
)

// NodeError is the error of an attempt: the host and port of the node, and the cause.
type NodeError struct {
	Addr string
	Err  error
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// Options of a client. Endpoints are needed, the others have defaults.
type Options struct {
	// Endpoints are nodes: http://HOST:PORT, or https://HOST:PORT. The client learns of the others.
	Endpoints []string
	// CAFile has the authorities to trust, PEM, by default the system's. CertFile and KeyFile are
	// the certificate to show. New connections use the files as they are then.
	CAFile, CertFile, KeyFile string
	// Cluster is the id of the cluster, by default that of the first node that is reached. Nodes of
	// another one are not asked: their timestamps have no order with those of this one.
	Cluster string
	// List asks nodes for the 16 bytes of each timestamp, in place of the 24 bytes of a range.
	List bool
	// Timeout bounds calls, beside their contexts: 5 s. ConnectTimeout is for one node: 1 s.
	Timeout, ConnectTimeout time.Duration
	// Queue is the most callers that wait for a request, 65,536: more get ErrBusy. MaxTimestamps is
	// the most of a request and of a call, 65,536: set it to the --max-timestamps of the nodes.
	Queue, MaxTimestamps int
}

// check sets the defaults. It returns the addresses of the endpoints, and nil without TLS.
func (o *Options) check() (addrs []string, config *tls.Config, err error) {
	o.Timeout, o.ConnectTimeout = cmp.Or(o.Timeout, 5*time.Second), cmp.Or(o.ConnectTimeout, time.Second)
	o.Queue, o.MaxTimestamps = cmp.Or(o.Queue, 1<<16), cmp.Or(o.MaxTimestamps, countMax)
	schemes := map[string]bool{}
	for _, endpoint := range o.Endpoints {
		scheme, addr, _ := strings.Cut(strings.TrimSuffix(endpoint, "/"), "://")
		if (scheme != "http" && scheme != "https") || checked(addr, true) == "" {
			return nil, nil, fmt.Errorf("%w endpoint %q: one looks like http://10.0.0.1:8080", ErrInvalid, endpoint)
		}
		schemes[scheme], addrs = true, append(addrs, addr)
	}
	switch isTLS := schemes["https"]; {
	case len(addrs) == 0 || len(addrs) > nodesMax || len(schemes) > 1 || !isTLS && o.CAFile+o.CertFile+o.KeyFile != "":
		err = fmt.Errorf("%w: a client has 1 to 64 endpoints of one scheme, https:// with files of TLS", ErrInvalid)
	case min(o.Timeout, o.ConnectTimeout) < 0 || min(o.Queue, o.MaxTimestamps) < 0 || o.MaxTimestamps > countMax:
		err = fmt.Errorf("%w: no option is below 0, and MaxTimestamps is at most %d", ErrInvalid, countMax)
	case isTLS:
		config, err = o.tlsConfig()
	}
	return addrs, config, err
}

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
	newest  map[string]*batch // by their forms
	highest step              // with the highest timestamp of all
	last    *NodeError        // since the last success
	node    *node             // the leader, as far as is known
	retryAt time.Time         // when the next request may be sent

	cluster, form        string   // the form is that of timestamps of 16 bytes
	endpoints, known     []string // known are the endpoints and the members
	next, failed         string   // next is asked before the others, and failed is the last that failed
	turn, hints, waiting int      // hints are since the last success, waiting are callers that were not sent
	delay                time.Duration
}

// batch is callers that share a request.
type batch struct {
	form           string
	ctx            context.Context // done with the answer, by the timeout, and when all callers have left
	cancel         context.CancelFunc
	begun          time.Time
	answer         atomic.Pointer[step] // set before ctx is done, if there is one
	isSent         bool                 // no caller joins any longer
	count, callers int                  // the timestamps of all that joined, and the callers that have not left
}

// New returns a client, which connects with its first call.
func New(options Options) (*Client, error) {
	addrs, config, err := options.check()
	if err != nil {
		return nil, err
	}
	c := &Client{options: options, tls: config, cluster: options.Cluster, endpoints: addrs, known: addrs,
		form: map[bool]string{true: listForm, false: rangeForm}[options.List], turn: rand.IntN(len(addrs)),
		newest: map[string]*batch{}, inFlight: make(chan struct{}, inFlightMax)}
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
func (c *Client) Timestamp(ctx context.Context) (Timestamp, error) { return c.call(ctx, 1, c.form) }

// Timestamps returns n timestamps of one epoch. It asks nodes until ctx is done or Options.Timeout
// has passed; ErrInvalid, ErrBusy, ErrRefused, ErrNotMonotonic and ErrClosed end it at once.
func (c *Client) Timestamps(ctx context.Context, n int) (Range, error) {
	first, err := c.call(ctx, n, c.form)
	return Range{first, n}, err
}

// TimestampU64 returns one timestamp of 64 bits, as TimestampsU64 does.
func (c *Client) TimestampU64(ctx context.Context) (uint64, error) { return c.TimestampsU64(ctx, 1) }

// TimestampsU64 returns the first of n consecutive timestamps of 64 bits, as Timestamps does. Those of both
// widths are in one order. An epoch has 262,143 of them: after these a call waits for the next epoch.
func (c *Client) TimestampsU64(ctx context.Context, n int) (uint64, error) {
	first, err := c.call(ctx, n, u64Form)
	return first.bits(), err
}

// call returns the first of n timestamps.
func (c *Client) call(ctx context.Context, n int, form string) (Timestamp, error) {
	b, offset, err := c.join(ctx, n, form)
	if err != nil {
		return Timestamp{}, err
	}
	select {
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	if got := b.answer.Load(); got != nil {
		return Range{First: got.first}.At(offset), got.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = cmp.Or(ctx.Err(), context.Cause(b.ctx)); c.last != nil {
		err = fmt.Errorf("%w; last failure: %w", err, c.last)
	}
	if b.callers--; b.callers == 0 {
		b.cancel()
	}
	if !b.isSent {
		c.waiting--
	}
	return Timestamp{}, fmt.Errorf("esker: no timestamps: %w", err)
}

// join adds a caller to the newest batch of its format, at an offset.
func (c *Client) join(ctx context.Context, n int, form string) (*batch, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch most := c.options.MaxTimestamps; {
	case n < 1 || n > most:
		return nil, 0, fmt.Errorf("%w: %d timestamps of 1 to %d", ErrInvalid, n, most)
	case cmp.Or(c.ctx.Err(), ctx.Err()) != nil:
		return nil, 0, fmt.Errorf("esker: no timestamps: %w", cmp.Or(context.Cause(c.ctx), ctx.Err()))
	case c.waiting >= c.options.Queue:
		return nil, 0, ErrBusy
	}
	b := c.newest[form]
	// Callers that begin at about the same time share a timer.
	if b == nil || b.isSent || b.ctx.Err() != nil || b.count > c.options.MaxTimestamps-n ||
		time.Since(b.begun) > c.options.Timeout/512 {
		b = &batch{form: form, begun: time.Now()}
		b.ctx, b.cancel = context.WithTimeout(c.ctx, c.options.Timeout)
		c.newest[form] = b
		go c.send(b)
	}
	c.waiting++
	b.count, b.callers = b.count+n, b.callers+1
	return b, b.count - n, nil
}

// send asks for the timestamps of a batch, when there is room in flight, until there is an answer.
func (c *Client) send(b *batch) {
	defer b.cancel()
	select {
	case c.inFlight <- struct{}{}:
	case <-b.ctx.Done():
		return
	}
	defer func() { <-c.inFlight }()
	for range yields {
		runtime.Gosched() // to callers that the last answer has woken
	}
	c.mu.Lock()
	b.isSent = true
	c.waiting -= b.callers
	c.mu.Unlock()
	// Deadlines of callers do not interrupt an attempt: short ones would start connecting over, again
	// and again.
	for b.ctx.Err() == nil {
		if got := c.attempt(b.count, b.form); got != nil {
			b.answer.Store(got)
			return
		}
	}
}

// attempt asks one node once; nil: ask again.
func (c *Client) attempt(n int, form string) *step {
	// The highest timestamp before the request is sent: another answer may be above this one.
	s, highest := c.connect()
	if s == nil {
		return nil
	}
	got := s.timestamps(c.ctx, n, form)
	last := step{first: Range{got.first, n}.Last(), form: form}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(got.err, ErrRefused):
		return &step{err: &NodeError{s.addr, got.err}}
	case got.err != nil && c.node == s: // unless another request has failed there before
		c.fail(s.addr, got)
		return nil
	case got.err != nil:
		return nil
	case !got.isAbove(highest):
		return &step{err: fmt.Errorf("%w: %s, %v after %v", ErrNotMonotonic, s.addr, got.first, highest.first)}
	case last.isAbove(c.highest):
		c.highest = last
	}
	if c.last = nil; c.node == s {
		c.failed, c.delay, c.hints = "", 0, 0
	}
	return &got
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
	} else if c.next, c.hints = got.leader, c.hints+1; c.hints <= hintsMax {
		return
	}
	c.delay = min(max(2*c.delay, retryDelayMin), retryDelayMax)
	c.retryAt = time.Now().Add(got.wait + c.delay/2 + rand.N(c.delay/2))
}

func (c *Client) leaveNode() {
	if c.node != nil {
		c.node.conn.Close()
		c.node = nil
	}
}

// connect returns the connection to the leader, or tries once to make one, and the highest timestamp.
func (c *Client) connect() (*node, step) {
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
	if c.turn++; c.known[c.turn%len(c.known)] == c.failed {
		c.turn++
	}
	addr := cmp.Or(c.next, c.known[c.turn%len(c.known)])
	c.next = ""
	c.mu.Unlock()
	if config, err := c.options.tlsConfig(); c.tls != nil && err == nil {
		c.tls = config
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.options.ConnectTimeout, ErrNoAnswer)
	defer cancel()
	s, err := dial(ctx, addr, c.tls)
	c.mu.Lock()
	c.node = s
	if err = cmp.Or(context.Cause(ctx), err); err == nil && cmp.Or(s.Cluster, c.cluster) != cmp.Or(c.cluster, s.Cluster) {
		err = fmt.Errorf("%w: %.64q", ErrOtherCluster, s.Cluster)
	}
	if err != nil {
		c.fail(addr, step{err: err})
		return nil, c.highest
	}
	c.cluster, c.known = cmp.Or(c.cluster, s.Cluster), slices.Clip(c.endpoints)
	for _, member := range s.Members[:min(len(s.Members), nodesMax)] {
		if addr := checked(member.Addr, false); addr != "" && !slices.Contains(c.endpoints, addr) {
			c.known = append(c.known, addr)
		}
	}
	// Not one that has just failed: clients may reach it at another address only.
	if leader := checked(s.Leader.Addr, false); leader != "" && leader != addr && leader != c.failed && c.hints < hintsMax {
		c.hints, c.next = c.hints+1, leader
		c.leaveNode()
	}
	return c.node, c.highest
}
