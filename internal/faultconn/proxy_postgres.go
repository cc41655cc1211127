package faultconn

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
)

// Codes of packets that a client may send instead of a startup packet.
const (
	pgCancel = 80877102
	pgSSL    = 80877103
	pgGSS    = 80877104
)

// pgLink is one connection to Postgres.
type pgLink struct {
	p              *Proxy
	client, server net.Conn
	units          chan *Answer // one a request, in their order; nil: the server's own

	mu sync.Mutex // guards writes to the server
}

func servePostgres(p *Proxy, client, server net.Conn) {
	l := &pgLink{p: p, client: client, server: server, units: make(chan *Answer, 1<<10)}
	if !l.startup() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.answers()
		_ = client.Close()
		_ = server.Close()
	}()
	l.requests()
	_ = client.Close()
	_ = server.Close()
	<-done
}

// startup forwards the packet that begins a connection; false ends it.
func (l *pgLink) startup() bool {
	for {
		var head [8]byte
		if _, err := io.ReadFull(l.client, head[:]); err != nil {
			return false
		}
		n := binary.BigEndian.Uint32(head[:4])
		rest := make([]byte, max(n, 8)-8)
		if _, err := io.ReadFull(l.client, rest); err != nil {
			return false
		}
		switch binary.BigEndian.Uint32(head[4:]) {
		case pgSSL, pgGSS:
			if _, err := l.client.Write([]byte("N")); err != nil {
				return false
			}
			continue
		case pgCancel:
			_, _ = l.server.Write(append(head[:], rest...))
			_, _ = io.Copy(io.Discard, l.server)
			return false
		}
		a := l.p.request([]byte("connect"))
		if a != nil && a.Code != "" {
			_, _ = l.client.Write(pgError(*a, "FATAL"))
			return false
		}
		l.units <- nil
		_, err := l.server.Write(append(head[:], rest...))
		return err == nil
	}
}

// requests forwards what the client sends, a request at a time.
func (l *pgLink) requests() {
	var unit []byte
	commits := false
	for {
		kind, message, err := pgRead(l.client)
		if err != nil {
			return
		}
		unit = append(unit, message...)
		switch kind {
		case 'P', 'Q':
			text := message[5:]
			if kind == 'P' {
				_, text, _ = bytes.Cut(text, []byte{0})
			}
			text, _, _ = bytes.Cut(text, []byte{0})
			commits = strings.EqualFold(strings.TrimSpace(string(text)), "commit")
		case 'p', 'd', 'c', 'f', 'H', 'X':
			if l.send(unit) != nil || kind == 'X' {
				return
			}
			unit = nil
		}
		if kind != 'Q' && kind != 'S' && kind != 'F' {
			continue
		}
		a := l.p.request(unit)
		if a != nil && a.Code != "" && !a.After {
			unit = instead(*a, commits)
		}
		l.units <- a
		if l.send(unit) != nil {
			return
		}
		unit, commits = nil, false
	}
}

// instead is a request that leaves the server as an error leaves it.
func instead(a Answer, commits bool) []byte {
	switch {
	case a.Fatal:
		return pgMessage('Q', []byte("\x00"))
	case commits:
		return pgMessage('Q', []byte("rollback\x00"))
	default:
		return pgMessage('Q', []byte("select 1/0\x00"))
	}
}

func (l *pgLink) send(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.server.Write(b)
	return err
}

// answers forwards what the server sends, and replaces it.
func (l *pgLink) answers() {
	var a *Answer
	begun := false
	for {
		kind, message, err := pgRead(l.server)
		if err != nil {
			return
		}
		if !begun && kind != 'N' && kind != 'A' {
			select {
			case a = <-l.units:
				begun = true
			default: // the server says it unasked
			}
		}
		if a != nil && kind != 'N' && kind != 'A' {
			if message = l.changed(*a, kind, message); message == nil {
				continue
			}
		}
		if kind == 'Z' {
			begun = false
		}
		if _, err := l.client.Write(message); err != nil || a != nil && a.Fatal {
			return
		}
		if kind == 'Z' {
			a = nil
		}
	}
}

// changed is what the client gets for a message; nil: nothing.
func (l *pgLink) changed(a Answer, kind byte, message []byte) []byte {
	if a.Code != "" {
		switch {
		case kind == 'G': // the client sends no rows
			_ = l.send(pgMessage('f', []byte("no\x00")))
			return nil
		case kind != 'Z':
			return nil
		case a.Fatal:
			return pgError(a, "FATAL")
		}
		return append(pgError(a, "ERROR"), message...)
	}
	switch kind {
	case 'D':
		return rowOf(a.Rows, message)
	case 'C':
		tag := strings.TrimRight(string(message[5:]), "\x00")
		if at := strings.LastIndexByte(tag, ' '); at > 0 && a.Rows == None {
			return pgMessage('C', []byte(tag[:at]+" 0\x00"))
		}
	}
	return message
}

func rowOf(rows Rows, message []byte) []byte {
	switch rows {
	case None:
		return nil
	case Twice:
		return append(message, message...)
	}
	n := int(binary.BigEndian.Uint16(message[5:]))
	return pgMessage('D', append(message[5:7:7], bytes.Repeat([]byte{0xff, 0xff, 0xff, 0xff}, n)...))
}

func pgRead(r io.Reader) (kind byte, message []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	message = make([]byte, 1+n)
	copy(message, head[:])
	_, err = io.ReadFull(r, message[5:])
	return head[0], message, err
}

func pgMessage(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

func pgError(a Answer, severity string) []byte {
	body := "S" + severity + "\x00V" + severity + "\x00C" + a.Code + "\x00M" + "replaced by a test\x00\x00"
	return pgMessage('E', []byte(body))
}
