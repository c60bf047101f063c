package esker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = template
	pair := a.issue(template)
	a.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	a.file = write(t, filepath.Join(t.TempDir(), "ca.pem"), "CERTIFICATE", cert.Raw)
	return a
}

func (a *authority) issue(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// pair returns a certificate for 127.0.0.1, or as it is changed.
func (a *authority) pair(change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	return a.issue(template)
}

// files writes a pair to a folder.
func (a *authority) files(folder string, pair tls.Certificate) (cert, key string) {
	a.t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	return write(a.t, filepath.Join(folder, "cert.pem"), "CERTIFICATE", pair.Certificate[0]),
		write(a.t, filepath.Join(folder, "key.pem"), "PRIVATE KEY", raw)
}

func write(t *testing.T, path, kind string, raw []byte) string {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secure configures a server with TLS. It wants certificates of the authority of clients, if any.
func secure(pair tls.Certificate, clients *authority) func(*httptest.Server) {
	return func(server *httptest.Server) {
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
		if clients != nil {
			server.TLS.ClientAuth = tls.RequireAndVerifyClientCert
			server.TLS.ClientCAs = x509.NewCertPool()
			server.TLS.ClientCAs.AddCert(clients.cert)
		}
		server.StartTLS()
	}
}

// trusting returns a client of these nodes, with TLS.
func trusting(t *testing.T, a *authority, change func(*Options), nodes ...*fake) *Client {
	t.Helper()
	return open(t, func(o *Options) {
		for i := range o.Endpoints {
			o.Endpoints[i] = "https" + strings.TrimPrefix(o.Endpoints[i], "http")
		}
		o.CAFile = a.file
		if change != nil {
			change(o)
		}
	}, nodes...)
}

func TestTheLeaderIsFoundAndAskedOverTLS(t *testing.T) {
	a, i := newAuthority(t), new(issuer)
	leader := start(t, i.reply, secure(a.pair(nil), nil))
	follower := start(t, always(notLeader(leader.addr)), secure(a.pair(nil), nil))
	client := trusting(t, a, nil, follower)
	for range 3 {
		one(t, client)
	}
	expect(t, leader.counts(), []int{1, 1, 1})
	expect(t, leader.connections(), 1)
}

// failure returns the failure of TLS of a client without an answer. It names the node.
func failure(t *testing.T, client *Client, node *fake) (err error) {
	t.Helper()
	eventually(t, "a failure of TLS", func() bool {
		_, err = client.Timestamp(within(t, 20*time.Millisecond))
		if err == nil {
			t.Fatal("it was trusted")
		}
		return errors.Is(err, ErrTLS)
	})
	if !strings.Contains(err.Error(), node.addr) || len(node.counts()) > 0 {
		t.Errorf("%v, and %s got %v", err, node.addr, node.counts())
	}
	return err
}

func TestANodeThatCannotBeTrustedIsNotAsked(t *testing.T) {
	a, other, i := newAuthority(t), newAuthority(t), new(issuer)
	node := start(t, i.reply, secure(a.pair(nil), nil))
	err := failure(t, trusting(t, other, nil, node), node)
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Error(err)
	}
	failure(t, trusting(t, a, func(o *Options) { o.CAFile = "" }, node), node)

	ended := start(t, i.reply, secure(a.pair(func(c *x509.Certificate) { c.NotAfter = time.Unix(1, 0) }), nil))
	err = failure(t, trusting(t, a, nil, ended), ended)
	if invalid := (x509.CertificateInvalidError{}); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Error(err)
	}

	elsewhere := start(t, i.reply, secure(a.pair(func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = nil, []string{"node-2.example"}
	}), nil))
	err = failure(t, trusting(t, a, nil, elsewhere), elsewhere)
	if host := (x509.HostnameError{}); !errors.As(err, &host) {
		t.Error(err)
	}

	old := start(t, i.reply, func(server *httptest.Server) {
		pair := a.pair(nil)
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: tls.VersionTLS12}
		server.StartTLS()
	})
	failure(t, trusting(t, a, nil, old), old)
}

// In TLS 1.3 the handshake succeeds before a node refuses a certificate.
func TestANodeThatWantsACertificateSaysSo(t *testing.T) {
	a, clients, i := newAuthority(t), newAuthority(t), new(issuer)
	node := start(t, i.reply, secure(a.pair(nil), clients))
	for range 20 {
		client := trusting(t, a, nil, node)
		if err := failure(t, client, node); !strings.Contains(err.Error(), "certificate required") {
			t.Error(err)
		}
		client.Close()
	}
	shows := func(by *authority) func(*Options) {
		cert, key := by.files(t.TempDir(), by.pair(nil))
		return func(o *Options) { o.CertFile, o.KeyFile = cert, key }
	}
	if err := failure(t, trusting(t, a, shows(a), node), node); !strings.Contains(err.Error(), "refuses the client") {
		t.Error(err)
	}
	one(t, trusting(t, a, shows(clients), node))
}

func TestPlainAndTLSThatMeetFail(t *testing.T) {
	a, i := newAuthority(t), new(issuer)
	plain := issuing(t, i)
	failure(t, trusting(t, a, nil, plain), plain)
	node := start(t, i.reply, secure(a.pair(nil), nil))
	if _, err := open(t, nil, node).Timestamp(within(t, short)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	expect(t, node.counts(), []int{})
}

func TestAHandshakeThatNeverEndsIsGivenUp(t *testing.T) {
	a := newAuthority(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	node := start(t, new(issuer).reply, secure(a.pair(nil), nil))
	one(t, trusting(t, a, func(o *Options) {
		o.Endpoints = append(o.Endpoints, "https://"+silent.Addr().String())
		o.ConnectTimeout = short
	}, node))
	client := trusting(t, a, func(o *Options) { o.Endpoints = []string{"https://" + silent.Addr().String()} })
	eventually(t, "no answer in time", func() bool {
		_, err := client.Timestamp(within(t, short))
		return errors.Is(err, ErrNoAnswer)
	})
}

func TestRenewedFilesAreUsedByNewConnections(t *testing.T) {
	a, clients, i := newAuthority(t), newAuthority(t), new(issuer)
	node := start(t, i.reply, secure(a.pair(nil), clients))
	folder := t.TempDir()
	cert, key := a.files(folder, a.pair(nil))
	client := trusting(t, a, func(o *Options) { o.CertFile, o.KeyFile = cert, key }, node)
	failure(t, client, node)
	clients.files(folder, clients.pair(nil))
	one(t, client)
	// While a file cannot be used, what was read before is.
	if err := os.WriteFile(cert, []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	node.cut()
	one(t, client)
	expect(t, node.connections() > 2, true)
}
