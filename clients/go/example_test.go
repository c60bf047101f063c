package esker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	esker "github.com/esker-log/esker/clients/go"
)

func Example() {
	client, err := esker.New(esker.Options{Endpoints: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	begin, err := client.Timestamp(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	hundred, err := client.Timestamps(context.Background(), 100)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hundred.First.Compare(begin)) // 1
}

// Timestamps of 64 bits are in one order with the others.
func ExampleClient_TimestampsU64() {
	client, err := esker.New(esker.Options{Endpoints: []string{"http://10.0.0.1:8080"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	const count = 100
	first, err := client.TimestampsU64(context.Background(), count)
	if err != nil {
		log.Fatal(err)
	}
	for number := first; number < first+count; number++ {
		fmt.Println(number)
	}
}

func ExampleFromUint64() {
	timestamp, ok := esker.FromUint64(445644800000000007)
	fmt.Println(timestamp.Epoch/1_000_000, timestamp.Index, ok)
	// Output: 1700000000000 7 true
}

// A certificate of the client is needed where nodes have --client-ca.
func ExampleOptions_tls() {
	client, err := esker.New(esker.Options{
		Endpoints: []string{"https://node-1.example:8080"},
		CAFile:    "ca.pem",
		CertFile:  "client.pem",
		KeyFile:   "client-key.pem",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleNodeError() {
	client, err := esker.New(esker.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = client.Timestamp(ctx)
	var failure *esker.NodeError
	if errors.Is(err, context.DeadlineExceeded) && errors.As(err, &failure) {
		fmt.Println("no timestamp in time from", failure.Addr)
	}
	// Output: no timestamp in time from 127.0.0.1:1
}

func ExampleTimestamp() {
	timestamp := esker.Timestamp{Epoch: 1_700_000_000_000_000_000, Index: 1}
	fmt.Println(timestamp, esker.FromBytes(timestamp.Bytes()) == timestamp)
	// Output: 17979cfe362a00000000000000000001 true
}
