package esker

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"
)

// Options of a client. Endpoints are needed, the others have defaults.
type Options struct {
	// Endpoints are nodes: http://HOST:PORT, or https://HOST:PORT. The client learns of the others.
	Endpoints []string
	// CAFile has the authorities to trust, PEM, by default the system's. CertFile and KeyFile are
	// the certificate to show. New connections use the files as they are then.
	CAFile, CertFile, KeyFile string
	// Cluster is the id of the cluster, by default that of the first node that is reached. Nodes of
	// another one are not asked: their timestamps have no order with those of this one.
	Cluster string
	// List asks nodes for the 16 bytes of each timestamp, in place of the 24 bytes of a range.
	List bool
	// Timeout bounds calls, beside their contexts: 5 s. ConnectTimeout is for one node: 1 s.
	Timeout, ConnectTimeout time.Duration
	// Queue is the most callers that wait for a request, 65,536: more get ErrBusy. MaxTimestamps is
	// the most of a request and of a call, 65,536: set it to the --max-timestamps of the nodes.
	Queue, MaxTimestamps int
}

// check sets the defaults. It returns the addresses of the endpoints, and nil without TLS.
func (o *Options) check() (addrs []string, config *tls.Config, err error) {
	o.Timeout, o.ConnectTimeout = cmp.Or(o.Timeout, 5*time.Second), cmp.Or(o.ConnectTimeout, time.Second)
	o.Queue, o.MaxTimestamps = cmp.Or(o.Queue, 1<<16), cmp.Or(o.MaxTimestamps, countMax)
	schemes := map[string]bool{}
	for _, endpoint := range o.Endpoints {
		scheme, addr, _ := strings.Cut(strings.TrimSuffix(endpoint, "/"), "://")
		if (scheme != "http" && scheme != "https") || checked(addr, true) == "" {
			return nil, nil, fmt.Errorf("%w endpoint %q: one looks like http://10.0.0.1:8080", ErrInvalid, endpoint)
		}
		schemes[scheme], addrs = true, append(addrs, addr)
	}
	if len(addrs) == 0 || len(addrs) > nodesMax || len(schemes) > 1 ||
		!schemes["https"] && o.CAFile+o.CertFile+o.KeyFile != "" {
		return nil, nil, fmt.Errorf("%w: a client has 1 to 64 endpoints of one scheme, https:// with files of TLS", ErrInvalid)
	}
	if schemes["https"] {
		config, err = o.tlsConfig()
	}
	return addrs, config, err
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
