package harness

import (
	"hash/crc32"
	"testing"
)

// The Rust side has the same test: both must make the same records.
func TestBothSidesMakeTheSameRecords(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	job := Job{Seed: 7, Least: 128, Most: 5000}
	sum, bytes := uint32(0), 0
	for writer := range 3 {
		p := newPayload(job, writer)
		for count := range uint64(100) {
			record := p.record(count)
			sum = crc32.Update(sum, table, record)
			bytes += len(record)
		}
	}
	if sum != goldenSum || bytes != goldenBytes {
		t.Fatalf("sum %#x of %d bytes", sum, bytes)
	}
}

const (
	goldenSum   = 0x20579985
	goldenBytes = 757762
)
