package esker

import "errors"

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

	errAgain = errors.New("ask again")
)

// NodeError is the error of an attempt: the host and port of the node, and the cause.
type NodeError struct {
	Addr string
	Err  error
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }
