package faultconn

import (
	"context"
	"net"
	"strings"
	"sync"
)

// Answer is what a client gets in place of the server's answer.
type Answer struct {
	// Code is the SQLSTATE on Postgres and the error number on MySQL. Empty: Rows says what
	// changes.
	Code string

	// State is the SQLSTATE on MySQL.
	State string

	// Fatal ends the connection with the answer.
	Fatal bool

	// After has the server execute the request first. Otherwise the request never takes effect.
	After bool

	// RollsBack rolls the transaction back before the answer. On Postgres every error does.
	RollsBack bool

	// StaysOpen leaves a transaction open on MySQL whose COMMIT or ROLLBACK is refused. Otherwise
	// it is rolled back.
	StaysOpen bool

	// Rows changes the rows of an answer and executes the request.
	Rows Rows
}

// Rows is a change to the rows of an answer.
type Rows int

const (
	None  Rows = iota + 1 // no row, and a count of 0
	Twice                 // each row twice
	Null                  // each column of each row is NULL
)

func (r Rows) String() string { return map[Rows]string{None: "none", Twice: "twice", Null: "null"}[r] }

func (a Answer) String() string {
	s := a.Code
	if a.Code == "" {
		return "rows: " + a.Rows.String()
	}
	if a.Fatal {
		s += " fatal"
	}
	if a.After {
		s += " after"
	}
	return s
}

// Proxy forwards connections to one real server and replaces chosen answers: by an error of any
// code, or by the same answer with other rows. It reads the protocol, so that the server stays in
// the state that the error implies. It counts the requests. Making a connection is one request.
type Proxy struct {
	listener net.Listener
	upstream string
	serve    func(*Proxy, net.Conn, net.Conn)

	mu     sync.Mutex
	decide func(n int) *Answer
	asked  int
	struck []string // what was asked when an answer was replaced
	text   string   // the request that next replaces the answer of
	next   *Answer
	open   map[net.Conn]struct{}
	closed bool
	links  sync.WaitGroup
}

// ProxyPostgres forwards to a Postgres at an address of TCP.
func ProxyPostgres(upstream string) (*Proxy, error) { return start(upstream, servePostgres) }

// ProxyMySQL forwards to a MySQL or MariaDB at an address of TCP. Connections must not be encrypted
// or compressed.
func ProxyMySQL(upstream string) (*Proxy, error) { return start(upstream, serveMySQL) }

func start(upstream string, serve func(*Proxy, net.Conn, net.Conn)) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, upstream: upstream, serve: serve, open: make(map[net.Conn]struct{})}
	p.links.Go(p.accept)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm starts to count anew, and replaces the answer to the k-th request from now on.
func (p *Proxy) Arm(k int, a Answer) {
	p.Decide(func(n int) *Answer {
		if n == k {
			return &a
		}
		return nil
	})
}

// Next replaces the answer to the next request that is text, whichever connection sends it.
func (p *Proxy) Next(text string, a Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.next = text, &a
}

// Decide starts to count anew. It calls decide with the number of each request, from 1; nil keeps
// the answer as it is.
func (p *Proxy) Decide(decide func(n int) *Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide, p.asked, p.struck = decide, 0, nil
}

// Disarm replaces no more answers. It returns how many requests were counted, and those that got
// another answer.
func (p *Proxy) Disarm() (asked int, struck []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = nil
	return p.asked, p.struck
}

// Close ends all connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.links.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.links.Go(func() {
			var dialer net.Dialer
			server, err := dialer.DialContext(context.Background(), "tcp", p.upstream)
			if err != nil {
				_ = client.Close()
				return
			}
			if p.enter(client, server) {
				p.serve(p, client, server)
			}
			p.leave(client, server)
		})
	}
}

func (p *Proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

// request counts a request and returns the answer that it gets instead of the server's; nil: none.
func (p *Proxy) request(text []byte) *Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	a := p.next
	if a != nil && strings.EqualFold(string(text), p.text) {
		p.next = nil
	} else if a = nil; p.decide != nil {
		a = p.decide(p.asked)
	}
	if a != nil {
		p.struck = append(p.struck, excerpt(text))
	}
	return a
}

// excerpt keeps what a person can read.
func excerpt(text []byte) string {
	s := make([]byte, 0, 120)
	for _, c := range text {
		if c < ' ' || c > '~' {
			c = ' '
		}
		if c == ' ' && (len(s) == 0 || s[len(s)-1] == ' ') {
			continue
		}
		if s = append(s, c); len(s) == cap(s) {
			break
		}
	}
	return string(s)
}
