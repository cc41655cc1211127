package optimistic

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Version describes what shows that a row of a Table has changed, and its Go type. Make one with
// Int, IntFromZero, Timestamp, UUID or Columns.
type Version[V any] struct {
	kind    driver.Kind
	first   int64 // of Int: the version of a new row
	columns []string
	pack    func(driver.Raw) V
	unpack  func(V) (driver.Raw, error)
}

// Values are columns and what is in them.
type Values map[string]any

// Set is what is written: columns and their new values, nil for NULL. A value is passed to the
// driver as it is. The key and the version are not set: the Table takes care of them.
type Set map[string]any

// Int is a version that is an integer and grows by one with each write: column BIGINT NOT NULL
// DEFAULT 1, or a smaller integer. Versions begin at 1: 0 is refused, as it is what a version is
// that was never read. It does not see that a row was deleted and made anew, which begins at 1
// again: if that happens use UUID.
func Int(column string) Version[int64] { return integer(column, 1) }

// IntFromZero is Int for tables whose versions begin at 0: Rails (lock_version), Hibernate and JPA
// (@Version) make such. Upsert inserts rows at version 0. A version below 0 is refused.
//
// It cannot refuse the 0 of a version that was never read: a write with that hits a row that has
// not been written since its insert. Use Int for tables of your own.
func IntFromZero(column string) Version[int64] { return integer(column, 0) }

func integer(column string, first int64) Version[int64] {
	return Version[int64]{
		kind: driver.Int, first: first, columns: []string{column},
		pack: func(r driver.Raw) int64 { return r.N },
		unpack: func(v int64) (driver.Raw, error) {
			switch {
			case v >= first:
				return driver.Raw{N: v}, nil
			case v == 0:
				return driver.Raw{}, invalid("expected", "the version 0 was never read from a row: versions begin at 1; %s", fromZero)
			}
			return driver.Raw{}, invalid("expected", "the version %d was never read from a row: versions begin at %d", v, first)
		},
	}
}

const fromZero = "if those of this table begin at 0, use IntFromZero"

// Timestamp is a version that the server sets to its clock, in microseconds, and always later than
// the version before, whatever its clock does. The column is TIMESTAMPTZ or TIMESTAMP (in UTC) on
// Postgres, DATETIME(6) (in UTC) on MySQL and MariaDB, NOT NULL. One of less precision would miss
// changes, and is refused. Go's times are cut to microseconds. All writers have to use a Table, or
// set the column likewise.
func Timestamp(column string) Version[time.Time] {
	return Version[time.Time]{
		kind: driver.Timestamp, columns: []string{column},
		pack: func(r driver.Raw) time.Time { return time.UnixMicro(r.N).UTC() },
		unpack: func(v time.Time) (driver.Raw, error) {
			if v.IsZero() {
				return driver.Raw{}, invalid("expected", "the zero time was never read from a row")
			}
			if year := v.UTC().Year(); year < 1000 || year > 9999 {
				return driver.Raw{}, invalid("expected", "the year %d is beyond what servers keep", year)
			}
			return driver.Raw{N: v.UnixMicro()}, nil
		},
	}
}

// UUID is a version that is a new random UUID with each write. It distinguishes a row from one that
// was deleted and made anew. The column is UUID on Postgres and MariaDB, BINARY(16) or CHAR(36) on
// MySQL and MariaDB, NOT NULL. A [16]byte is what the UUID types of most libraries are made of:
// they can be passed as they are.
func UUID(column string) Version[[16]byte] {
	return Version[[16]byte]{
		kind: driver.UUID, columns: []string{column},
		pack: func(r driver.Raw) [16]byte { return r.U },
		unpack: func(v [16]byte) (driver.Raw, error) {
			if v == [16]byte{} {
				return driver.Raw{}, invalid("expected", "the nil UUID was never read from a row")
			}
			return driver.Raw{U: v}, nil
		},
	}
}

// Columns is for tables without a version: a row is written only if these columns still have the
// values that they were read with, NULL included. A write that changes none of them is not noticed,
// nor is a change that was taken back; so name all columns that your decision depends on, and use a
// version if you can. Columns of floats and of JSON can't be compared exactly, and are refused,
// and so is a DECIMAL with more than 35 digits before the point on MySQL and MariaDB. Texts are
// compared byte by byte, whatever their collation.
//
// A DATE or DATETIME of MySQL and MariaDB has no time zone. The driver reads and sends a time.Time
// of it in the loc of the DSN, and so does dblock. With another loc than UTC the DSN needs
// parseTime=true. A TIMESTAMP of Postgres without a time zone, and a DATE, are compared with the
// clock that the time.Time shows in its own location.
//
// The new version that a write returns has the values that were set. On Postgres they are as the
// server has stored them; on MySQL and MariaDB as they were given. There one that the server
// rounds, cuts or computes (a generated column, ON UPDATE) is a conflict at the next write, and has
// to be read again.
func Columns(columns ...string) Version[Values] {
	columns = slices.Clone(columns)
	return Version[Values]{
		kind: driver.Columns, columns: columns,
		pack: func(r driver.Raw) Values {
			v := make(Values, len(columns))
			for i, column := range columns {
				v[column] = r.Values[i]
			}
			return v
		},
		unpack: func(v Values) (driver.Raw, error) {
			if len(v) != len(columns) {
				return driver.Raw{}, invalid("expected", "it has %d columns, not %d: give a value for each of %q", len(v), len(columns), columns)
			}
			r := driver.Raw{Values: make([]any, len(columns))}
			for i, column := range columns {
				value, ok := v[column]
				if !ok {
					return r, invalid("expected", "it has no value of the column %q", column)
				}
				r.Values[i] = value
			}
			return r, nil
		},
	}
}

// Expected is what Upsert expects of a row. The zero value is refused.
type Expected[V any] struct {
	version V
	kind    expectation
}

type expectation uint8

const (
	present expectation = iota + 1
	absent
)

// At expects a row that has the version v.
func At[V any](v V) Expected[V] { return Expected[V]{version: v, kind: present} }

// Absent expects that there is no such row.
func Absent[V any]() Expected[V] { return Expected[V]{kind: absent} }

// String is "absent", or the version.
func (e Expected[V]) String() string {
	switch e.kind {
	case absent:
		return "absent"
	case present:
		return fmt.Sprint(e.version)
	}
	return "nothing"
}

// newUUID is a random one, of version 4.
func newUUID() (u [16]byte) {
	_, _ = rand.Read(u[:]) // never fails
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// shown is a version as people read it.
func shown(v any) any {
	if u, ok := v.([16]byte); ok {
		return driver.FormatUUID(u)
	}
	return v
}
