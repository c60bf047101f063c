package harness

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// check compares records with what their writers must have written, in each writer's order.
type check struct {
	payloads []*payload
	next     []uint64
	// full compares every byte of every so many-th record, and number and length of the others.
	full uint64
}

func newCheck(job Job, full uint64) *check {
	c := &check{next: make([]uint64, job.Writers), full: full}
	for writer := range job.Writers {
		c.payloads = append(c.payloads, newPayload(job, writer))
	}
	return c
}

func (c *check) see(record []byte) error {
	if len(record) < head {
		return fmt.Errorf("a record of %d bytes was read back", len(record))
	}
	writer, count := binary.LittleEndian.Uint32(record), binary.LittleEndian.Uint64(record[4:])
	if int(writer) >= len(c.next) || c.next[writer] != count {
		return fmt.Errorf("record %d of writer %d was read back where another one belongs", count, writer)
	}
	c.next[writer]++
	if wanted := c.payloads[writer].record(count); len(wanted) != len(record) ||
		count%c.full == 0 && !bytes.Equal(wanted, record) {
		return fmt.Errorf("record %d of writer %d is not what was written", count, writer)
	}
	return nil
}

func (c *check) done(counts []uint64) error {
	for writer, count := range counts {
		if c.next[writer] != count {
			return fmt.Errorf("writer %d wrote %d records, and %d were read back", writer, count, c.next[writer])
		}
	}
	return nil
}
