package faultmatrix

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
)

// link is the network between all workers of a run and their server. Its dialer breaks connections
// at chosen calls.
type link struct {
	dialer faultconn.Dialer

	mu       sync.Mutex
	addr     string // its own
	upstream string
	listener net.Listener
	clients  map[net.Conn]struct{}
	silence  chan struct{} // closed when the network is mended; nil: it is not silent
	delay    time.Duration // of each packet
	pieces   int           // bytes that come through at once; 0: as many as come
	ended    bool
	pipes    sync.WaitGroup
}

func newLink(upstream string) (*link, error) {
	l := &link{upstream: upstream, clients: make(map[net.Conn]struct{})}
	return l, l.listen("127.0.0.1:0")
}

func (l *link) listen(addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.listener, l.addr = listener, listener.Addr().String()
	l.mu.Unlock()
	l.pipes.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			l.pipes.Go(func() { l.serve(client) })
		}
	})
	return nil
}

// serve forwards one connection.
func (l *link) serve(client net.Conn) {
	l.mu.Lock()
	upstream := l.upstream
	l.clients[client] = struct{}{}
	ended := l.ended
	l.mu.Unlock()
	defer func() {
		_ = client.Close()
		l.mu.Lock()
		delete(l.clients, client)
		l.mu.Unlock()
	}()
	l.pass()
	server, err := l.dialer.DialContext(context.Background(), "tcp", upstream)
	if err != nil || ended {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pipe(server, client) })
	both.Go(func() { l.pipe(client, server) })
	both.Wait()
}

// pipe forwards one direction. Its end closes both connections, once the network lets that
// through.
func (l *link) pipe(to, from net.Conn) {
	defer func() {
		l.pass()
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.pass()
		for data := buffer[:n]; len(data) > 0; {
			piece := data
			if pieces := l.sized(); pieces > 0 {
				piece = data[:min(pieces, len(data))]
			}
			if _, err := to.Write(piece); err != nil {
				return
			}
			data = data[len(piece):]
		}
		if err != nil {
			return
		}
	}
}

func (l *link) sized() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pieces
}

// pass waits while the network is silent, and for its delay.
func (l *link) pass() {
	for {
		l.mu.Lock()
		silence, delay := l.silence, l.delay
		l.mu.Unlock()
		if silence == nil {
			time.Sleep(delay)
			return
		}
		<-silence
	}
}

// silent stops everything in either direction, without an error at either end.
func (l *link) silent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence == nil {
		l.silence = make(chan struct{})
	}
}

// slow delays each packet, and lets only so many bytes through at once.
func (l *link) slow(delay time.Duration, pieces int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.pieces = delay, pieces
}

// mend ends all that the link does to its connections. What was silent comes through.
func (l *link) mend() {
	l.dialer.Disarm()
	l.slow(0, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence != nil {
		close(l.silence)
		l.silence = nil
	}
}

// lead has new connections go to another server.
func (l *link) lead(upstream string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upstream = upstream
}

// refuse closes all connections and refuses new ones, until accept.
func (l *link) refuse() {
	l.mu.Lock()
	_ = l.listener.Close()
	l.mu.Unlock()
	l.cut()
}

func (l *link) accept() (err error) {
	for range 50 {
		if err = l.listen(l.addr); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// cut closes all connections at both ends.
func (l *link) cut() (n int) {
	l.mu.Lock()
	for c := range l.clients {
		_ = c.Close()
		n++
	}
	l.mu.Unlock()
	l.dialer.CloseAll()
	return n
}

// open is how many connections the workers have not closed.
func (l *link) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

func (l *link) close() {
	l.mend()
	l.mu.Lock()
	l.ended = true
	_ = l.listener.Close()
	l.mu.Unlock()
	l.cut()
	l.dialer.Release()
	l.pipes.Wait()
}
