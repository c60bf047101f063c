package esker

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	answerTimeout   = 1500 * time.Millisecond // a node answers within a second
	pingInterval    = 200 * time.Millisecond
	pingTimeout     = 300 * time.Millisecond
	shareWaitsMax   = 50 // of a millisecond
	headersBytesMax = 16 << 10
	membersBytesMax = 1 << 20
)

// node is a connection to a node. It is not made again when it ends: it may be another node then.
type node struct {
	scheme, addr string
	conn         net.Conn
	transport    *http.Transport
}

// members are those of a cluster, as a node knows them.
type members struct {
	Cluster string
	Leader  struct{ Addr string }
	Members []struct{ Addr string }
}

// dial connects to a node, with TLS if there is a config, and asks for the members of its cluster. The
// caller closes the connection, also after an error.
func dial(ctx context.Context, addr string, config *tls.Config) (s *node, list members, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, list, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s = &node{scheme: "http", addr: addr, conn: conn, transport: &http.Transport{Protocols: protocols,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		DisableCompression: true, MaxResponseHeaderBytes: headersBytesMax}}
	if config != nil {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
		secure := tls.Client(conn, config)
		s.scheme, s.conn = "https", secure
		if err := secure.HandshakeContext(ctx); err != nil {
			return s, list, fmt.Errorf("%w: %w", ErrTLS, err)
		}
	}
	var isDialed atomic.Bool
	s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		if !isDialed.Swap(true) {
			return s.conn, nil
		}
		// The transport shares a connection just after it has given it to the first request.
		for waits := 0; waits < shareWaitsMax && !s.hasEnded(); waits++ {
			time.Sleep(time.Millisecond)
		}
		return nil, net.ErrClosed
	}
	s.transport.DialTLSContext = s.transport.DialContext
	status, _, body, err := s.get(ctx, "/members", "", membersBytesMax)
	// The handshake has succeeded before a node looks at the client's certificate.
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		err = fmt.Errorf("%w: the node refuses the client: %w", ErrTLS, err)
	} else if err == nil && (status != 200 || json.Unmarshal(body, &list) != nil || list.Members == nil) {
		return s, members{}, fmt.Errorf("no list of members: status %d, %.200q", status, body)
	}
	return s, list, err
}

// hasEnded reports whether the connection was closed, also by the node.
func (s *node) hasEnded() bool { return s.conn.SetDeadline(time.Time{}) != nil }

// get sends a request. A longer answer is cut off, and no redirect is followed.
func (s *node) get(ctx context.Context, path, query string, bytesMax int64) (int, http.Header, []byte, error) {
	request := &http.Request{URL: &url.URL{Scheme: s.scheme, Host: s.addr, Path: path, RawQuery: query}, Header: http.Header{}}
	response, err := s.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, bytesMax))
	return response.StatusCode, response.Header, body, err
}

// timestamps asks for n timestamps.
func (s *node) timestamps(ctx context.Context, n int, list bool) step {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, ErrNoAnswer)
	defer cancel()
	query := fmt.Sprintf("n=%d", n)
	if !list {
		query += "&format=range"
	}
	status, header, body, err := s.get(ctx, "/timestamp", query, int64(16*n+1000))
	if err != nil {
		return step{err: cmp.Or(context.Cause(ctx), err)}
	}
	return decide(n, list, status, header, body)
}
