package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pressly/goose/v3"
)

// Migration is one migration that this program or the database knows.
type Migration struct {
	Version int64  `json:"version"` // its number, counted from 1
	Name    string `json:"name"`    // its file's name; "" when only the database knows it, because it is newer
	Applied bool   `json:"applied"` // whether it is recorded in the database, and whole

	// Begun: an Up or a Down of it was cut off, or is under way. The next one continues.
	Begun bool `json:"begun,omitempty"`
}

// Status lists all migrations by version, and writes nothing: a database without tables has all of
// them still to come. While others migrate it may already be out of date. It waits for a lock of
// the table of versions for half a second, on MySQL and MariaDB for one second.
//
// Errors: dblock.ErrInvalid, dblock.ErrUnavailable when the server can't be reached,
// dblock.ErrPermission when the user lacks a privilege, dblock.ErrServerTooOld, and dblock.ErrBusy
// when the table of versions is locked: it names the session, if it can. Tables that are newer than
// this program are no error here: they show as migrations without a name.
func Status[D DB](ctx context.Context, db D, opts Options) (_ []Migration, err error) {
	if opts, err = opts.withDefaults(); err != nil {
		return nil, err
	}
	t, err := open(ctx, db, opts.Schema)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	s, err := newStore(t)
	if err != nil {
		return nil, err
	}
	versions, err := s.read(ctx)
	if err != nil {
		return nil, explain(ctx, "reading the versions", err)
	}
	list, err := known(t.engine)
	if err != nil {
		return nil, err
	}
	for i := range list {
		applied, found := versions[list[i].Version]
		list[i].Applied, list[i].Begun = applied, found && !applied
		delete(versions, list[i].Version)
	}
	for version, applied := range versions {
		list = append(list, Migration{Version: version, Applied: applied, Begun: !applied})
	}
	slices.SortFunc(list, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// known are the embedded migrations of an engine, by version.
func known(engine Engine) ([]Migration, error) {
	names, err := fs.Glob(engine.files(""), "*.sql") // sorted, and the numbers have leading zeros
	if err != nil {
		return nil, err
	}
	list := make([]Migration, len(names))
	for i, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("dblock: migration %s: %w", name, err)
		}
		list[i] = Migration{Version: version, Name: name}
	}
	return list, nil
}
