package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

// run is one Up or Down, on the connection that has the lock. goose's files are the migrations and
// goose's table records them; goose's provider is not used, because it looks at the table before it
// has the lock, and on MySQL, where each statement commits by itself, it can't continue a
// migration.
//
// A version is recorded as not applied before its first statement runs, and as applied, or not at
// all, after its last. So what is recorded as applied is whole, and what is recorded as not applied
// is dblock's and may be half. On Postgres all that is one transaction, but for statements that run
// apart.
type run struct {
	*target
	store *store
	conn  *sql.Conn
	opts  Options
	list  []Migration // that this program knows

	// What was read under the lock, and done since.
	recorded map[int64]bool // versions; false: begun, and not completed
	there    schema.Shape
	created  map[string]bool // tables
	applied  []Applied

	unchecked bool // the manifest is being made
}

// objects reads what dblock's tables have.
func (r *run) objects(ctx context.Context) (schema.Shape, error) {
	if r.engine == MySQL {
		return mysql.Objects(ctx, r.conn, r.schema)
	}
	rows, err := r.conn.QueryContext(ctx, postgres.ObjectsQuery, r.versionTable())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // was only read
	return postgres.ReadObjects(rows)
}

// inspect notes what dblock's tables have. It waits for locks as long as a statement does.
func (r *run) inspect(ctx context.Context) error {
	return r.patiently(ctx, func() string { return "" }, func() (err error) {
		if r.there, err = r.objects(ctx); err != nil {
			return fmt.Errorf("dblock: looking at the tables: %w", err)
		}
		return nil
	})
}

// expected is what a version has, without what this user may not see: a service that calls Up has
// no right to more.
func (r *run) expected(ctx context.Context, version int64) (schema.Shape, error) {
	want := schema.Expected(string(r.engine), version)
	if r.engine == MySQL {
		if err := mysql.DropUnseen(ctx, r.conn, r.schema, r.server, want, r.there); err != nil {
			return nil, fmt.Errorf("dblock: looking at the tables: %w", err)
		}
	}
	return want, nil
}

// newest is the newest version that is recorded; 0: none.
func (r *run) newest() int64 {
	return slices.Max(append(slices.Collect(maps.Keys(r.recorded)), 0))
}

func (r *run) up(ctx context.Context) error {
	whole := int64(0)
	for version, applied := range r.recorded {
		if applied {
			whole = max(whole, version)
		}
	}
	missing := map[schema.Object]bool{}
	want, err := r.expected(ctx, whole)
	if err != nil {
		return err
	}
	for _, o := range want.Missing(r.there) {
		missing[o] = true
	}
	if err := r.refuseForeign(); err != nil {
		return err
	}
	for _, m := range r.list {
		half, err := r.half(m, "up")
		if err != nil {
			return err
		}
		wanted := r.wantedUp
		if r.recorded[m.Version] {
			wanted = func(p part) bool { return r.wantedAgain(p, missing) }
		}
		if err := r.migrate(ctx, half, wanted); err != nil {
			return err
		}
	}
	return r.verify(ctx)
}

// refuseForeign refuses tables that were not made by dblock, before anything is written. On MySQL a
// table that is what dblock would create is one: an older program was killed before it had recorded
// the version.
func (r *run) refuseForeign() error {
	for _, m := range r.list {
		if _, recorded := r.recorded[m.Version]; recorded {
			continue
		}
		half, err := r.half(m, "up")
		if err != nil {
			return err
		}
		for _, s := range half.statements {
			if p := s.parts[0]; p.verb != add || p.object.Name != "" || !r.there.HasTable(s.table) {
				continue
			}
			want := schema.Expected(string(r.engine), m.Version).Of(s.table)
			differences := want.Differences(r.there)
			if r.engine == MySQL && len(want) > 0 && len(differences) == 0 {
				continue
			}
			if err := r.unrecorded(); err != nil {
				return err
			}
			why := ""
			if len(differences) > 0 {
				why = ": " + strings.Join(differences, ", ")
			}
			return fmt.Errorf("%w: table %s of %q was not made by dblock%s: rename it, or name another schema for dblock's tables",
				dblock.ErrSchema, s.table, r.schema, why)
		}
	}
	return nil
}

// unrecorded returns an error if the tables are those of a version, and no version is recorded.
func (r *run) unrecorded() error {
	if len(r.recorded) > 0 {
		return nil
	}
	for version := schema.Version; version > 0; version-- {
		if len(schema.Expected(string(r.engine), version).Differences(r.there)) > 0 {
			continue
		}
		rows := make([]string, version)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, true)", i+1)
		}
		return fmt.Errorf("%w: the tables of version %d are in %q, and %s records no version: it was dropped or emptied. "+
			"If the tables are dblock's, restore its rows, and run up again: INSERT INTO %s (version_id, is_applied) VALUES %s",
			dblock.ErrSchema, version, r.schema, schema.VersionTable, r.versionTable(), strings.Join(rows, ", "))
	}
	return nil
}

// wantedUp reports whether a part of a migration has yet to be done.
func (r *run) wantedUp(p part) bool {
	switch p.verb {
	case add:
		return !r.has(p.object) || r.invalid(p.object)
	case drop:
		return r.has(p.object) || r.created[p.object.Table] // of those nothing but the table is noted
	}
	return true
}

// wantedAgain reports whether a part of a migration that is recorded has to be done once more.
func (r *run) wantedAgain(p part, missing map[schema.Object]bool) bool {
	switch {
	case p.verb == add && p.object.Name == "":
		return !r.there.HasTable(p.object.Table)
	case p.verb == add:
		return missing[p.object] && !r.has(p.object) || r.invalid(p.object)
	}
	return p.verb == other && p.text != "" && r.created[p.object.Table]
}

func (r *run) wantedDown(p part) bool {
	switch p.verb {
	case add:
		return !r.has(p.object) && r.there.HasTable(p.object.Table)
	case drop:
		return r.has(p.object)
	}
	return p.text == "" || r.there.HasTable(p.object.Table)
}

// has looks for an index that is named without its table, too.
func (r *run) has(o schema.Object) bool {
	if o.Table != "" {
		return r.there.Has(o)
	}
	for there := range r.there {
		if there.Kind == o.Kind && there.Name == o.Name {
			return true
		}
	}
	return false
}

// invalid reports an index that Postgres had begun to build apart.
func (r *run) invalid(o schema.Object) bool { return r.there[o] == postgres.InvalidIndex }

// done notes what a part has done.
func (r *run) done(p part) {
	o := p.object
	switch {
	case p.verb == add:
		r.created[o.Table] = r.created[o.Table] || o.Name == ""
		r.there[o] = ""
	case p.verb == drop:
		maps.DeleteFunc(r.there, func(have schema.Object, _ string) bool {
			return have == o || o.Name == "" && have.Table == o.Table || o.Table == "" && have.Kind == o.Kind && have.Name == o.Name
		})
	}
}

// down undoes what is newer than a version, newest first.
func (r *run) down(ctx context.Context, to int64) error {
	for _, m := range slices.Backward(r.list) {
		if _, recorded := r.recorded[m.Version]; !recorded || m.Version <= to {
			continue
		}
		half, err := r.half(m, "down")
		if err != nil {
			return err
		}
		if err := r.migrate(ctx, half, r.wantedDown); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the tables with this program's version.
func (r *run) verify(ctx context.Context) error {
	if r.unchecked {
		return nil
	}
	if len(r.applied) > 0 {
		if err := r.inspect(ctx); err != nil {
			return err
		}
	}
	want, err := r.expected(ctx, schema.Version)
	if err != nil {
		return err
	}
	differences := want.Differences(r.there)
	if len(differences) == 0 {
		return nil
	}
	return fmt.Errorf("%w: up creates what is missing and changes nothing else, and these are not as version %d has them: %s: "+
		"alter them, or move the tables away and run up again", dblock.ErrSchema, schema.Version, strings.Join(differences, ", "))
}

// half is one direction of a migration.
type half struct {
	Migration
	direction  string
	statements []statement
}

func (r *run) half(m Migration, direction string) (half, error) {
	up, down, err := script{engine: r.engine}.sections(m.Name)
	if err != nil {
		return half{}, err
	}
	text := up
	if direction == "down" {
		text = down
	}
	list, err := statements(text)
	return half{m, direction, list}, err
}

// migrate runs the statements that are wanted, and records the version. Without any it only
// completes the record.
func (r *run) migrate(ctx context.Context, h half, wanted func(part) bool) error {
	applied := r.recorded[h.Version]
	if h.direction == "up" && applied && !slices.ContainsFunc(h.statements, func(s statement) bool { _, any := s.only(wanted); return any }) {
		return nil
	}
	began := time.Now()
	do := r.step
	if r.engine == Postgres {
		do = r.stepPostgres
	}
	if err := do(ctx, h, wanted); err != nil {
		return fmt.Errorf("dblock: migration %s failed: %w", h.Name, err)
	}
	a := Applied{Version: h.Version, Name: h.Name, Took: time.Since(began)}
	r.applied = append(r.applied, a)
	r.opts.Logger.InfoContext(ctx, "dblock: migrated", "direction", h.direction, "migration", a.Name, "schema", r.schema, "took", a.Took)
	return nil
}

// step runs a migration on MySQL and MariaDB, where each statement commits.
func (r *run) step(ctx context.Context, h half, wanted func(part) bool) error {
	record := func(do func(context.Context, database.DBTxConn, half) error) error {
		return r.patiently(ctx, func() string { return schema.VersionTable }, func() error { return do(ctx, r.conn, h) })
	}
	if err := record(r.begin); err != nil {
		return err
	}
	for _, s := range h.statements {
		s, any := s.only(wanted)
		if !any {
			continue
		}
		err := r.patiently(ctx, func() string { return s.table }, func() error { return r.exec(ctx, r.conn, s) })
		if err != nil {
			return err
		}
		for _, p := range s.parts {
			r.done(p)
		}
	}
	return record(r.end)
}
