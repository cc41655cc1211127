package pglock

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/session"
)

// The statements of session locks are sent in Postgres' own binary form: to convert their arguments
// and answers one by one would take this process longer than the server takes to lock.

// Run does the steps in one statement.
func (c *sessionConn) Run(ctx context.Context, steps []session.Step) ([]bool, error) {
	if len(steps) == 1 {
		switch steps[0].Op {
		case session.Take:
			return c.one(ctx, pgdb.TakeSessionLock, steps[0])
		case session.Free:
			return c.one(ctx, pgdb.FreeSessionLock, steps[0])
		}
	}
	answer, err := c.exec(ctx, pgdb.SessionSteps, c.arrays(steps)...)
	if err != nil {
		return nil, err
	}
	if want := arrayHeader + len(steps)*(elementHeader+1); len(answer) != want {
		return nil, fmt.Errorf("dblock: an answer of %d bytes to %d steps with session locks, which is not %d", len(answer), len(steps), want)
	}
	done := make([]bool, len(steps))
	for i := range done {
		done[i] = answer[arrayHeader+i*(elementHeader+1)+elementHeader] != 0
	}
	return done, nil
}

// one runs the request of a single caller.
func (c *sessionConn) one(ctx context.Context, statement string, step session.Step) ([]bool, error) {
	c.args = append(c.args[:0], step.ID...)
	answer, err := c.exec(ctx, statement, c.args)
	if err != nil {
		return nil, err
	}
	if len(answer) != 1 { // no row or NULL: the lock may be taken
		return nil, fmt.Errorf("dblock: an answer of %d bytes to a step with a session lock, which is not 1", len(answer))
	}
	return []bool{answer[0] != 0}, nil
}

// exec runs a statement that returns one value, which is good until the next one.
func (c *sessionConn) exec(ctx context.Context, statement string, args ...[]byte) (answer []byte, err error) {
	if c.tracer != nil { // pgx calls it only if it converts the arguments itself
		ctx = c.tracer.TraceQueryStart(ctx, c.conn, pgx.TraceQueryStartData{SQL: statement})
		defer func() { c.tracer.TraceQueryEnd(ctx, c.conn, pgx.TraceQueryEndData{Err: err}) }()
	}
	prepared, err := c.conn.Prepare(ctx, statement, statement) // it is, after the first time
	if err != nil {
		return nil, err
	}
	result := c.conn.PgConn().ExecStatement(ctx, prepared, args, binaryFormat, binaryFormat)
	c.reply = c.reply[:0]
	for result.NextRow() {
		for _, value := range result.Values() {
			c.reply = append(c.reply, value...)
		}
	}
	_, err = result.Close()
	return c.reply, err
}

// binaryFormat is that of all arguments, and of all columns.
var binaryFormat = []int16{1}

// An array has a header, and so has each of its elements: its length.
const (
	arrayHeader   = 20
	elementHeader = 4
)

// arrays are the three arguments of SessionSteps.
func (c *sessionConn) arrays(steps []session.Step) [][]byte {
	n := len(steps)
	b := header(c.args[:0], pgtype.Int8OID, n)
	for _, s := range steps {
		b = append(append(b, 0, 0, 0, 8), s.ID...)
	}
	marks := len(b)
	b = header(b, pgtype.Int8OID, n)
	for _, s := range steps {
		b = binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(waiterKey(keyOf(s.ID))))
	}
	ops := len(b)
	b = header(b, pgtype.Int2OID, n)
	for _, s := range steps {
		b = append(b, 0, 0, 0, 2, 0, byte(s.Op))
	}
	c.args = b
	return [][]byte{b[:marks], b[marks:ops], b[ops:]}
}

// header is that of an array of one dimension without NULLs.
func header(b []byte, element uint32, n int) []byte {
	for _, field := range [...]uint32{1, 0, element, uint32(n), 1} {
		b = binary.BigEndian.AppendUint32(b, field)
	}
	return b
}

// waiterKey is the second number of a key, which marks sessions that wait for exclusive mode:
// that of SplitMix64, so that keys which are close to each other are far apart.
func waiterKey(key int64) int64 {
	z := uint64(key) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64(z ^ z>>31)
}
