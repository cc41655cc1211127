package migrations

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock/internal/schema"
)

// Applied is one migration that a call has applied, or undone.
type Applied struct {
	Version int64         // its number, counted from 1
	Name    string        // its file's name, for example "00001_inventory.sql"
	Took    time.Duration // how long its statements took
}

// Up brings dblock's tables up to the version that this program needs, and returns what it applied:
// nothing when there was nothing to do. Every process of a service may call it at the same time.
//
// Errors: dblock.ErrUnavailable when the server can't be reached, dblock.ErrServerTooOld, ErrPooler,
// dblock.ErrBusy when another process goes on migrating for longer than the LockTimeout, and
// dblock.ErrSchema when the tables are newer than this program knows. With all of these nothing was
// written. When a migration itself fails, those before it stay: on Postgres it leaves nothing
// behind, on MySQL it may leave a part, and running Up again completes it.
func Up[D DB](ctx context.Context, db D, opts Options) ([]Applied, error) {
	return change(ctx, db, opts, func(ctx context.Context, p *goose.Provider) ([]*goose.MigrationResult, error) {
		return p.Up(ctx)
	})
}

// Down undoes the newest migration, with all data in the tables it drops. It returns what it undid:
// nothing when there are no tables. Its errors are those of Up.
func Down[D DB](ctx context.Context, db D, opts Options) ([]Applied, error) {
	return change(ctx, db, opts, func(ctx context.Context, p *goose.Provider) ([]*goose.MigrationResult, error) {
		one, err := p.Down(ctx)
		if one == nil || errors.Is(err, goose.ErrNoNextVersion) {
			return nil, ignore(err, goose.ErrNoNextVersion)
		}
		return []*goose.MigrationResult{one}, err
	})
}

// DownTo undoes all migrations newer than version, newest first, with all data in the tables they
// drop; version 0 undoes everything. The (then empty) dblock_schema_version stays. Its errors are
// those of Up.
func DownTo[D DB](ctx context.Context, db D, version int64, opts Options) ([]Applied, error) {
	if version < 0 {
		return nil, fmt.Errorf("dblock: migrations: version %d: it must not be negative", version)
	}
	return change(ctx, db, opts, func(ctx context.Context, p *goose.Provider) ([]*goose.MigrationResult, error) {
		return p.DownTo(ctx, version)
	})
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

type step func(context.Context, *goose.Provider) ([]*goose.MigrationResult, error)

func change[D DB](ctx context.Context, db D, opts Options, run step) (_ []Applied, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := open(ctx, db, opts.Schema)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return t.change(ctx, newLocker(t, opts.LockTimeout), opts, run)
}

func (t *target) change(ctx context.Context, l lock.SessionLocker, opts Options, run step) ([]Applied, error) {
	if !t.direct {
		return nil, ErrPooler
	}
	s, err := newStore(t)
	if err != nil {
		return nil, err
	}
	versions, err := s.versions(ctx, t.db)
	if err != nil {
		return nil, err
	}
	for have := range versions {
		if have > schema.Version {
			return nil, schema.Check(have)
		}
	}
	files, err := t.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	session := &preparing{SessionLocker: l, prepare: s.prepare}
	p, err := goose.NewProvider(goose.DialectCustom, t.db, files,
		goose.WithStore(s),
		goose.WithSessionLocker(session),
		goose.WithDisableGlobalRegistry(true), // the host's own Go migrations are none of ours
	)
	if err != nil {
		return nil, fmt.Errorf("dblock: migrations: %w", err)
	}
	// p.Close would close the host's database: it must not be called.
	results, err := run(ctx, p)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}
	return t.report(ctx, opts, results), explain(ctx, session, err)
}

func (t *target) report(ctx context.Context, opts Options, results []*goose.MigrationResult) []Applied {
	var list []Applied
	for _, r := range results {
		a := Applied{Version: r.Source.Version, Name: path.Base(r.Source.Path), Took: r.Duration}
		list = append(list, a)
		opts.Logger.InfoContext(ctx, "dblock: migrated", "direction", r.Direction, "migration", a.Name,
			"schema", t.schema, "took", a.Took)
	}
	return list
}
