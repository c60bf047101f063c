package esker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"
)

const (
	answerTimeout                    = 1500 * time.Millisecond // a node answers within a second
	pingInterval, pingTimeout        = 200 * time.Millisecond, 300 * time.Millisecond
	shareWaitsMax                    = 50 // of a millisecond
	headersBytesMax, membersBytesMax = 16 << 10, 1 << 20
)

// node is a connection to a node, and the members of its cluster, as it knows them. The connection is not
// made again when it ends: it may be another node then.
type node struct {
	scheme, addr string
	conn         net.Conn
	transport    *http.Transport
	Cluster      string
	Leader       struct{ Addr string }
	Members      []struct{ Addr string }
}

// dial connects to a node, with TLS if there is a config, and asks for the members of its cluster. The
// caller closes the connection, also after an error.
func dial(ctx context.Context, addr string, config *tls.Config) (*node, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &node{scheme: "http", addr: addr, conn: conn, transport: &http.Transport{Protocols: protocols,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		DisableCompression: true, MaxResponseHeaderBytes: headersBytesMax}}
	if config != nil {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
		secure := tls.Client(conn, config)
		s.scheme, s.conn = "https", secure
		if err := secure.HandshakeContext(ctx); err != nil {
			return s, fmt.Errorf("%w: %w", ErrTLS, err)
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
	} else if err == nil && (status != 200 || json.Unmarshal(body, s) != nil || s.Members == nil) {
		err = fmt.Errorf("no list of members: status %d, %.200q", status, body)
	}
	return s, err
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
func (s *node) timestamps(ctx context.Context, n int, form string) step {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, ErrNoAnswer)
	defer cancel()
	status, header, body, err := s.get(ctx, "/timestamp", fmt.Sprint("n=", n, form), int64(16*n+1000))
	if err != nil {
		return step{err: cmp.Or(context.Cause(ctx), err)}
	}
	return decide(n, form, status, header, body)
}

// tlsConfig reads the files. Without a cache of sessions certificates are always checked.
func (o *Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: no certificate in %s: %w", ErrInvalid, o.CAFile, cmp.Or(err, os.ErrInvalid))
		}
	}
	if o.CertFile+o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %s and %s: %w", ErrInvalid, o.CertFile, o.KeyFile, err)
		}
		// Also where the node names other authorities: it says why it refuses the certificate.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}
