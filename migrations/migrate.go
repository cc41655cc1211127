package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
)

// Applied is one migration that a call has applied, or undone.
type Applied struct {
	Version int64         // its number, counted from 1
	Name    string        // its file's name, for example "00001_inventory.sql"
	Took    time.Duration // how long its statements took
}

// Up brings dblock's tables up to the version that this program needs. It returns the migrations
// that it applied, completed or repaired: none if there was nothing to do. Every process of a
// service may call it at the same time.
//
// Up continues what a process that was killed has left, whether that was an Up or a Down. It
// creates tables, columns and indexes again that are recorded and missing. A CHECK that is missing
// from a table it names, and it changes nothing that is there.
//
// A migration waits a second at most for transactions that use its tables, lets others pass, and
// tries again. Up waits for its table of versions in the same way. While it waits, other statements
// on these tables wait behind it. docs/migrations.md lists what each migration locks.
//
// Errors: dblock.ErrInvalid if db is nil or an option is out of range. dblock.ErrUnavailable if the
// server can't be reached. dblock.ErrServerTooOld. ErrPooler. dblock.ErrBusy if another process
// migrates, or a transaction uses a table, for longer than the LockTimeout. dblock.ErrSchema if the
// tables are newer than this program knows, if a table of another program has the name of one of
// dblock's, or if a table differs from its version. On Postgres also if a table belongs to a role
// that docs/grants.md says not to trust. dblock.ErrUnsupported for a search_path that names
// pg_catalog after another schema. The migrations before the one that fails stay. On Postgres the
// one that fails leaves nothing behind, except for indexes of large tables; on MySQL and MariaDB it
// may leave a part. The next Up completes it.
func Up[D DB](ctx context.Context, db D, opts Options) ([]Applied, error) {
	return change(ctx, db, opts, (*run).up)
}

// Down undoes the newest migration, with all data in the tables it drops. It returns what it undid:
// nothing when there are no tables. It also undoes a migration that was begun and not completed.
// Its errors are those of Up.
func Down[D DB](ctx context.Context, db D, opts Options) ([]Applied, error) {
	return change(ctx, db, opts, func(r *run, ctx context.Context) error { return r.down(ctx, r.newest()-1) })
}

// DownTo undoes all migrations newer than version, newest first, with all data in the tables they
// drop; version 0 undoes everything. The (then empty) dblock_schema_version stays. Its errors are
// those of Up.
func DownTo[D DB](ctx context.Context, db D, version int64, opts Options) ([]Applied, error) {
	if version < 0 {
		return nil, &dblock.InvalidError{Field: "version", Reason: fmt.Sprintf("%d is negative", version)}
	}
	return change(ctx, db, opts, func(r *run, ctx context.Context) error { return r.down(ctx, version) })
}

type step func(*run, context.Context) error

func change[D DB](ctx context.Context, db D, opts Options, do step) (_ []Applied, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := open(ctx, db, opts.Schema)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return t.change(ctx, newLocker(t, opts.LockTimeout), opts, do)
}

// change takes the lock and has the step done on its connection: if that ends, so do both.
func (t *target) change(ctx context.Context, l lock.SessionLocker, opts Options, do step) ([]Applied, error) {
	if !t.direct {
		return nil, ErrPooler
	}
	if err := t.checkOwner(); err != nil {
		return nil, err
	}
	s, err := newStore(t)
	if err != nil {
		return nil, err
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return nil, explain(ctx, "migrating", firstContact(err))
	}
	defer func() { _ = conn.Close() }() // goes back to its pool
	r := &run{target: t, store: s, conn: conn, opts: opts, created: map[string]bool{}}
	restore, err := r.settle(ctx)
	defer restore()
	if err != nil {
		return nil, explain(ctx, "migrating", err)
	}
	if err := l.SessionLock(ctx, conn); err != nil {
		return nil, explain(ctx, "migrating", err)
	}
	err = r.locked(ctx, do)
	if unlock := l.SessionUnlock(ctx, conn); err == nil {
		err = unlock
	}
	return r.applied, explain(ctx, "migrating", err)
}

// locked reads what there is, and has the step done.
func (r *run) locked(ctx context.Context, do step) (err error) {
	err = r.patiently(ctx, func() string { return schema.VersionTable }, func() error {
		r.recorded, err = r.store.prepare(ctx, r.conn)
		if createdMeanwhile(err) {
			r.recorded, err = r.store.prepare(ctx, r.conn)
		}
		return err
	})
	if err != nil {
		return err
	}
	for have := range r.recorded {
		if have > schema.Version {
			return schema.Check(have)
		}
	}
	if r.list, err = known(r.engine); err != nil {
		return err
	}
	if err := r.inspect(ctx); err != nil {
		return err
	}
	return do(r, ctx)
}
