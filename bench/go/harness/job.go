// Package harness gives every Go peer the same work, and reads it back. The Rust side has the twin of
// each file here.
package harness

import (
	"flag"
	"strings"
)

// Job is what one run of a peer shall do. The flags are those of the Rust side.
type Job struct {
	System      string
	Shape       string
	Writers     int
	Least, Most int
	Batch       int
	Seconds     float64
	Count       uint64
	Seed        uint64
	Dir         string
}

func parseJob() Job {
	var job Job
	flag.StringVar(&job.System, "system", "", "name of the system")
	flag.StringVar(&job.Shape, "shape", "callers", "callers, pipelined or stream")
	flag.IntVar(&job.Writers, "writers", 1, "concurrent callers")
	flag.IntVar(&job.Least, "least", 900, "bytes of the smallest record")
	flag.IntVar(&job.Most, "most", 900, "bytes of the largest record")
	flag.IntVar(&job.Batch, "batch", 1, "records of one append")
	flag.Float64Var(&job.Seconds, "seconds", 1, "length of the timed part where no count is given")
	flag.Uint64Var(&job.Count, "count", 0, "records of each caller in the timed part")
	flag.Uint64Var(&job.Seed, "seed", 1, "what the records follow from")
	flag.StringVar(&job.Dir, "dir", "", "an empty directory")
	flag.Parse()
	return job
}

// Batched says whether a group committer stands in front of the peer.
func (j Job) Batched() bool { return strings.HasSuffix(j.System, "-batched") }
