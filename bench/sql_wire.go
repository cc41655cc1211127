package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// wire is a connection to Postgres that has been made and then is spoken to by hand: one write for
// a statement, and answers that are looked at only as far as it takes to find their end. What a
// driver does besides would show as time of the server, where both share the processors.
type wire struct {
	conn   net.Conn
	in     *bufio.Reader
	out    []byte
	status byte // of the transaction: I for none

	mu   sync.Mutex
	busy bool
	done <-chan struct{} // of the context whose end is watched for
	stop func() bool
}

func dialWire(ctx context.Context, cfg *pgconn.Config) (*wire, error) {
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	// A write that took long has it read in the background, where it would take our first answer.
	err = conn.SyncConn(ctx)
	var made *pgconn.HijackedConn
	if err == nil {
		made, err = conn.Hijack()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return &wire{conn: made.Conn, in: bufio.NewReaderSize(made.Conn, 8<<10), status: made.TxStatus}, nil
}

// begin has the end of ctx close the connection, until end: nothing else could end what the server
// does not answer. Callers come with the same context again and again, so that it is watched for
// once and not once a statement.
func (w *wire) begin(ctx context.Context) error {
	done := ctx.Done()
	w.mu.Lock()
	w.busy = true
	watched := w.done == done
	w.done = done
	w.mu.Unlock()
	if !watched {
		if w.stop != nil {
			w.stop()
		}
		w.stop = context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.busy && w.done == done {
				_ = w.conn.Close()
			}
		})
	}
	if ctx.Err() != nil {
		w.end()
		return context.Cause(ctx)
	}
	return nil
}

func (w *wire) end() {
	w.mu.Lock()
	w.busy = false
	w.mu.Unlock()
}

func (w *wire) close() error {
	if w.stop != nil {
		w.stop()
	}
	// A goodbye, where that is still possible.
	_ = w.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = w.conn.Write([]byte{'X', 0, 0, 0, 4})
	if err := w.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// The messages that are sent, appended to out. A message is its letter, its length, and its body.

func (w *wire) open(letter byte) (at int) {
	w.out = append(w.out, letter, 0, 0, 0, 0)
	return len(w.out) - 4
}

func (w *wire) shut(at int) { binary.BigEndian.PutUint32(w.out[at:], uint32(len(w.out)-at)) }

func (w *wire) text(s string) { w.out = append(append(w.out, s...), 0) }

// sync ends what is answered together.
func (w *wire) sync() { w.shut(w.open('S')) }

// simple runs a statement that has no parameters.
func (w *wire) simple(sql string) error {
	w.out = w.out[:0]
	at := w.open('Q')
	w.text(sql)
	w.shut(at)
	return w.exchange()
}

// prepare leaves the types of the parameters to the server.
func (w *wire) prepare(name, sql string) error {
	w.out = w.out[:0]
	at := w.open('P')
	w.text(name)
	w.text(sql)
	w.out = append(w.out, 0, 0)
	w.shut(at)
	w.sync()
	return w.exchange()
}

// bind begins a prepared statement; param is called for each parameter, and appends it as text.
func (w *wire) bind(name string, params int, param func(dst []byte, n int) []byte) {
	w.out = w.out[:0]
	at := w.open('B')
	w.out = append(w.out, 0) // the portal without a name
	w.text(name)
	w.out = append(w.out, 0, 0) // all as text
	w.out = binary.BigEndian.AppendUint16(w.out, uint16(params))
	for n := range params {
		size := len(w.out)
		w.out = param(append(w.out, 0, 0, 0, 0), n)
		binary.BigEndian.PutUint32(w.out[size:], uint32(len(w.out)-size-4))
	}
	w.out = append(w.out, 0, 0) // results as text
	w.shut(at)
}

// execute runs what was bound. The description of the rows is asked for as pgbench's library does:
// it is work for the server that the two shall share alike.
func (w *wire) execute() error {
	at := w.open('D')
	w.out = append(w.out, 'P', 0)
	w.shut(at)
	at = w.open('E')
	w.out = append(w.out, 0, 0, 0, 0, 0) // the portal without a name, all rows
	w.shut(at)
	w.sync()
	return w.exchange()
}

// exchange sends out, and reads until the server is ready for more.
func (w *wire) exchange() error {
	if _, err := w.conn.Write(w.out); err != nil {
		// A server that ends a session says why before it hangs up.
		return errors.Join(w.receive(), err)
	}
	return w.receive()
}

var (
	errCopy     = errors.New("COPY from or to the client is not supported")
	errProtocol = errors.New("the server does not speak Postgres's protocol")
)

// maxError is far more than an error that a server describes can have.
const maxError = 1 << 20

func (w *wire) receive() error {
	var failed error
	for {
		head, err := w.in.Peek(5)
		if err != nil {
			return lost(failed, err)
		}
		letter, size := head[0], int(binary.BigEndian.Uint32(head[1:]))-4
		if size < 0 {
			return errProtocol
		}
		_, _ = w.in.Discard(len(head)) // they have been read
		switch letter {
		case 'E', 'Z':
			body, err := w.body(size)
			if err != nil {
				return lost(failed, err)
			}
			if letter == 'E' {
				failed = serverError(body)
				continue
			}
			if len(body) != 1 {
				return errProtocol
			}
			w.status = body[0]
			return failed
		case 'G', 'H', 'W':
			// The server now waits, and has others wait that drop a database.
			return errors.Join(errCopy, w.conn.Close())
		default:
			if _, err := w.in.Discard(size); err != nil {
				return lost(failed, err)
			}
		}
	}
}

func (w *wire) body(size int) ([]byte, error) {
	if size > maxError {
		return nil, errProtocol
	}
	if size <= w.in.Size() {
		body, err := w.in.Peek(size)
		if err == nil {
			_, err = w.in.Discard(size)
		}
		return body, err
	}
	body := make([]byte, size)
	_, err := io.ReadFull(w.in, body)
	return body, err
}

// lost is the error of a connection that ended, after what the server may have said before.
func lost(said, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(said, fmt.Errorf("the connection is lost: %w", err))
}

func serverError(body []byte) error {
	var msg pgproto3.ErrorResponse
	if err := msg.Decode(body); err != nil {
		return errors.Join(errProtocol, err)
	}
	return pgconn.ErrorResponseToPgError(&msg)
}
