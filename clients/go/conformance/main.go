// The driver of the Go client for the conformance suite of clients, which its README describes:
// requests come on standard input, answers go to standard output, one JSON object on each line.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	esker "github.com/esker-log/esker/clients/go"
)

const lineBytesMax = 1 << 20

type request struct {
	ID            int64
	Op            string
	Endpoints     []string
	CA            string
	ClientCert    string `json:"client_cert"`
	ClientKey     string `json:"client_key"`
	Token         string
	Cluster       string
	Format        string
	TimeoutMS     *float64 `json:"timeout_ms"`
	ConnectMS     float64  `json:"connect_timeout_ms"`
	Queue         int
	MaxTimestamps int `json:"max_timestamps"`
	N             int
	Call          int64
	A, B          string
	Callers       int
	Seconds       float64
}

// answer is what follows the id.
type answer map[string]any

type driver struct {
	out    sync.Mutex
	client *esker.Client
	format string // of calls that name none

	mu      sync.Mutex
	cancels map[int64]context.CancelFunc
}

func main() {
	d := &driver{cancels: map[int64]context.CancelFunc{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		d.begin(r)
	}
}

func (d *driver) begin(r request) {
	switch r.Op {
	case "open":
		d.reply(r.ID, d.open(r))
	case "close":
		client := d.client
		d.client = nil
		d.reply(r.ID, failed(client.Close()))
	case "timestamps":
		ctx, cancel := context.WithCancel(context.Background())
		if r.TimeoutMS != nil {
			ctx, cancel = context.WithTimeout(context.Background(), milliseconds(*r.TimeoutMS))
		}
		d.keep(r.ID, cancel)
		client, format := d.client, cmp.Or(r.Format, d.format)
		go func() {
			defer cancel()
			a := timestamps(ctx, client, r.N, format)
			d.keep(r.ID, nil)
			d.reply(r.ID, a)
		}()
	case "cancel":
		d.mu.Lock()
		if cancel := d.cancels[r.Call]; cancel != nil {
			cancel()
		}
		d.mu.Unlock()
		d.reply(r.ID, answer{})
	case "compare":
		d.reply(r.ID, compare(r.A, r.B))
	case "bench":
		client, format := d.client, d.format
		go func() { d.reply(r.ID, bench(client, r.Callers, r.Seconds, format)) }()
	default:
		d.reply(r.ID, kind("unsupported", "no operation "+r.Op))
	}
}

// keep keeps the cancel function of a call, or forgets it.
func (d *driver) keep(id int64, cancel context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel == nil {
		delete(d.cancels, id)
	} else {
		d.cancels[id] = cancel
	}
}

func (d *driver) reply(id int64, a answer) {
	a["id"] = id
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	d.out.Lock()
	defer d.out.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func (d *driver) open(r request) answer {
	options := esker.Options{
		Endpoints:      r.Endpoints,
		CAFile:         r.CA,
		CertFile:       r.ClientCert,
		KeyFile:        r.ClientKey,
		Cluster:        r.Cluster,
		List:           r.Format == "list",
		ConnectTimeout: milliseconds(r.ConnectMS),
		Queue:          r.Queue,
		MaxTimestamps:  r.MaxTimestamps,
	}
	if r.Token != "" {
		return kind("unsupported", "this client makes no changes")
	}
	if r.TimeoutMS != nil {
		options.Timeout = milliseconds(*r.TimeoutMS)
	}
	client, err := esker.New(options)
	if err != nil {
		return failed(err)
	}
	d.client, d.format = client, r.Format
	return answer{}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func kind(kind, message string) answer {
	return answer{"error": map[string]string{"kind": kind, "message": message}}
}

// failed returns the answer of an error, as the README of the suite names it.
func failed(err error) answer {
	if err == nil {
		return answer{}
	}
	name := "internal"
	for _, each := range []struct {
		err  error
		name string
	}{
		{esker.ErrInvalid, "invalid"},
		{esker.ErrBusy, "queue_full"},
		{esker.ErrRefused, "refused"},
		{esker.ErrNotMonotonic, "went_backwards"},
		{esker.ErrClosed, "closed"},
		{context.DeadlineExceeded, "deadline"},
		{context.Canceled, "cancelled"},
	} {
		if errors.Is(err, each.err) {
			name = each.name
			break
		}
	}
	a := kind(name, err.Error())
	if failure := (*esker.NodeError)(nil); errors.As(err, &failure) {
		cause := failure.Err.Error()
		if errors.Is(failure, esker.ErrTLS) {
			cause = "tls"
		} else if errors.Is(failure, esker.ErrOtherCluster) {
			cause = "other_cluster"
		}
		a["error"].(map[string]string)["cause"] = cause
	}
	return a
}

func timestamps(ctx context.Context, client *esker.Client, n int, format string) answer {
	if format == "u64" {
		first, err := client.TimestampsU64(ctx, n)
		if err != nil {
			return failed(err)
		}
		last := first + uint64(n) - 1
		return answer{"first": strconv.FormatUint(first, 10), "last": strconv.FormatUint(last, 10), "count": n}
	}
	got, err := client.Timestamps(ctx, n)
	if err != nil {
		return failed(err)
	}
	return answer{"first": got.First.String(), "last": got.Last().String(), "count": got.Count}
}

func compare(a, b string) answer {
	one, errA := parse(a)
	other, errB := parse(b)
	if err := cmp.Or(errA, errB); err != nil {
		return kind("invalid", err.Error())
	}
	parts := func(t esker.Timestamp) answer {
		return answer{"epoch": strconv.FormatUint(t.Epoch, 10), "index": strconv.FormatUint(t.Index, 10)}
	}
	return answer{"order": one.Compare(other), "a": parts(one), "b": parts(other)}
}

func parse(text string) (esker.Timestamp, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 16 {
		return esker.Timestamp{}, fmt.Errorf("%q is no timestamp", text)
	}
	return esker.FromBytes([16]byte(b)), nil
}

// bench has callers of one timestamp each call for some seconds.
func bench(client *esker.Client, callers int, seconds float64, format string) answer {
	var sum atomic.Int64
	var all sync.WaitGroup
	failures := make(chan error, callers)
	one := func() error {
		_, err := client.Timestamp(context.Background())
		return err
	}
	if format == "u64" {
		one = func() error {
			_, err := client.TimestampU64(context.Background())
			return err
		}
	}
	begun := time.Now()
	end := begun.Add(time.Duration(seconds * float64(time.Second)))
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			count := int64(0)
			for time.Now().Before(end) {
				if err := one(); err != nil {
					failures <- err
					break
				}
				count++
			}
			sum.Add(count)
		}()
	}
	all.Wait()
	select {
	case err := <-failures:
		return failed(err)
	default:
		return answer{"timestamps": sum.Load(), "seconds": time.Since(begun).Seconds()}
	}
}
