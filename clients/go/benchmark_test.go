package esker

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCallers has 1,000 callers of one timestamp each, which share a client. It asks the nodes
// that ESKER_ENDPOINTS lists, with commas between them, or a fake one.
func BenchmarkCallers(b *testing.B) {
	benchmark(b, func(client *Client) error {
		_, err := client.Timestamp(context.Background())
		return err
	})
}

// BenchmarkCallersU64 is the same with timestamps of 64 bits.
func BenchmarkCallersU64(b *testing.B) {
	benchmark(b, func(client *Client) error {
		_, err := client.TimestampU64(context.Background())
		return err
	})
}

func benchmark(b *testing.B, one func(*Client) error) {
	const callers = 1000
	options := Options{Endpoints: strings.Split(os.Getenv("ESKER_ENDPOINTS"), ",")}
	if os.Getenv("ESKER_ENDPOINTS") == "" {
		node := start(b, new(issuer).reply, nil)
		options.Endpoints = []string{"http://" + node.addr}
	}
	client, err := New(options)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	if err := one(client); err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	left.Store(int64(b.N))
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for left.Add(-1) >= 0 {
				if err := one(client); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "timestamps/s")
}
