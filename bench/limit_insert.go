package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	bulkRows   = 1000 // to a statement
	bulkPrefix = "bulk/"
	bulkDigits = 12
)

// bulk loads order rows of the size that a sale writes. Their keys ascend, which is the cheapest
// order for an index.
type bulk struct {
	loader
	text []byte // of one statement, or what follows it
	keys []int  // where in it the keys' numbers begin
	next int64  // number of the next row
}

// loader is a session that loads rows.
type loader interface {
	load(ctx context.Context, text []byte) (rows int64, err error)
	count(ctx context.Context, from, until string) (rows int64, err error)
	Close() error
}

func openBulk(ctx context.Context, env *Env) (Workload, error) {
	if env.Kind == devdb.Postgres {
		l, err := newCopier(ctx, env)
		if err != nil {
			return nil, err
		}
		return newBulk(l, "", "", "\tsku-1\tbuyer-1\t1\t2\n", ""), nil
	}
	l, err := newInserter(ctx, env)
	if err != nil {
		return nil, err
	}
	const head = "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES "
	return newBulk(l, head, "('", "','sku-1','buyer-1',1,2)", ","), nil
}

// newBulk builds the text once. Only the numbers in it change: the time that it would take to build
// a new one is not the server's.
func newBulk(l loader, head, before, after, between string) *bulk {
	b := &bulk{loader: l, text: []byte(head)}
	for i := range bulkRows {
		if i > 0 {
			b.text = append(b.text, between...)
		}
		b.text = append(append(b.text, before...), bulkKey(0)...)
		b.keys = append(b.keys, len(b.text)-bulkDigits)
		b.text = append(b.text, after...)
	}
	return b
}

func bulkKey(n int64) string { return fmt.Sprintf("%s%0*d", bulkPrefix, bulkDigits, n) }

func (b *bulk) Round(context.Context, int) (Round, error) {
	first := b.next
	return Round{
		Client: func(int) (Op, error) { return b.insert, nil },
		Check: func(ctx context.Context, ok int64) error {
			rows, err := b.count(ctx, bulkKey(first), bulkKey(b.next))
			if err == nil && rows != ok {
				err = fmt.Errorf("the server took %d rows, and holds %d", ok, rows)
			}
			return err
		},
	}, nil
}

func (b *bulk) insert(ctx context.Context) (int, error) {
	for _, at := range b.keys {
		putNumber(b.text[at:at+bulkDigits], b.next)
		b.next++
	}
	rows, err := b.load(ctx, b.text)
	if err == nil && rows != bulkRows {
		err = fmt.Errorf("the server took %d rows of %d", rows, bulkRows)
	}
	return bulkRows, err
}

// putNumber writes n into all of digits.
func putNumber(digits []byte, n int64) {
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
}

// copier loads with COPY: it is a tenth faster than the INSERT from arrays that dblock's own
// batches use.
type copier struct {
	env  *Env
	pool *pgxpool.Pool
	conn *pgxpool.Conn
	text bytes.Reader
}

func newCopier(ctx context.Context, env *Env) (*copier, error) {
	pool, err := env.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &copier{env: env, pool: pool, conn: conn}, nil
}

// load goes below pgx's CopyFrom, which asks for the columns' types anew each time.
func (c *copier) load(ctx context.Context, text []byte) (int64, error) {
	const statement = "COPY dblock_reservation (reservation_key, sku, buyer, qty, state) FROM STDIN"
	c.env.Statements(1)
	c.text.Reset(text)
	tag, err := c.conn.Conn().PgConn().CopyFrom(ctx, &c.text, statement)
	return tag.RowsAffected(), err
}

func (c *copier) count(ctx context.Context, from, until string) (rows int64, err error) {
	err = c.conn.QueryRow(ctx, `SELECT count(*) FROM dblock_reservation r
		WHERE r.reservation_key >= $1 AND r.reservation_key < $2`, from, until).Scan(&rows)
	return rows, err
}

func (c *copier) Close() error {
	c.conn.Release()
	c.pool.Close()
	return nil
}

// inserter loads with a statement of many rows, in one round trip.
type inserter struct {
	db   *sql.DB
	conn *sql.Conn
}

func newInserter(ctx context.Context, env *Env) (*inserter, error) {
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l := &inserter{db, conn}
	// A server may be set to leave commits to its clients: then all of it would be one transaction.
	if _, err := conn.ExecContext(ctx, "SET autocommit = 1"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *inserter) load(ctx context.Context, text []byte) (int64, error) {
	result, err := l.conn.ExecContext(ctx, string(text))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (l *inserter) count(ctx context.Context, from, until string) (rows int64, err error) {
	err = l.conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM dblock_reservation r
		WHERE r.reservation_key >= ? AND r.reservation_key < ?`, []byte(from), []byte(until)).Scan(&rows)
	return rows, err
}

func (l *inserter) Close() error { return errors.Join(l.conn.Close(), l.db.Close()) }
