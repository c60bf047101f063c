// Package harness gives every Go peer the same work, and reads it back. The Rust side does the same in
// bench/src, with the records, callers and latencies of crates/bench.
package harness

import (
	"flag"
	"fmt"
	"strings"
)

// Job is what one run of a peer shall do. The flags are those of the Rust side.
type Job struct {
	System      string
	Set         string
	Shape       string
	Writers     int
	Least, Most int
	Batch       int
	Reads       int
	Random      bool
	Seconds     float64
	Count       uint64
	Seed        uint64
	Dir         string
}

func parseJob() Job {
	var job Job
	flag.StringVar(&job.System, "system", "", "name of the system")
	flag.StringVar(&job.Set, "set", "log", "log or consensus: what it is compared with")
	flag.StringVar(&job.Shape, "shape", "callers", "callers, pipelined, stream, batches; or slots, recovery, kill, scan")
	flag.IntVar(&job.Writers, "writers", 1, "concurrent callers")
	flag.IntVar(&job.Least, "least", 900, "bytes of the smallest record")
	flag.IntVar(&job.Most, "most", 900, "bytes of the largest record")
	flag.IntVar(&job.Batch, "batch", 1, "records of one append; slots that are recovered or scanned")
	flag.IntVar(&job.Reads, "reads", 0, "reads among 100 operations on slots")
	flag.BoolVar(&job.Random, "random", false, "slots are written in a shuffled order")
	flag.Float64Var(&job.Seconds, "seconds", 1, "length of the timed part where no count is given")
	flag.Uint64Var(&job.Count, "count", 0, "records or operations of each caller in the timed part; recoveries, scans")
	flag.Uint64Var(&job.Seed, "seed", 1, "what the records follow from")
	flag.StringVar(&job.Dir, "dir", "", "an empty directory")
	flag.Parse()
	return job
}

// flags make this job again.
func (j Job) flags() []string {
	return []string{
		"-system=" + j.System, "-set=" + j.Set, "-shape=" + j.Shape, "-dir=" + j.Dir,
		fmt.Sprint("-writers=", j.Writers), fmt.Sprint("-least=", j.Least), fmt.Sprint("-most=", j.Most),
		fmt.Sprint("-batch=", j.Batch), fmt.Sprint("-reads=", j.Reads), fmt.Sprint("-random=", j.Random),
		fmt.Sprint("-seconds=", j.Seconds), fmt.Sprint("-count=", j.Count), fmt.Sprint("-seed=", j.Seed),
	}
}

// Batched says whether a group committer batches the appends of the peer.
func (j Job) Batched() bool { return strings.HasSuffix(j.System, "-batched") }
