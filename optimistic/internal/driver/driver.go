// Package driver is the seam between optimistic.Table, which decides, and its drivers, which know
// one database's SQL: a driver writes texts and runs them.
package driver

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Kind is what a row's version is kept in.
type Kind uint8

// The kinds of versions.
const (
	Int       Kind = iota + 1 // grows by one with each write
	Timestamp                 // set by the server, in microseconds, and always later than the one before
	UUID                      // a new one with each write
	Columns                   // none: the values of some columns are compared
)

// LastMoment is the last microsecond of the year 9999: no time after it is a version.
const LastMoment = 253402300799_999999

// Raw is a version as drivers see it; its kind says which of the fields counts.
type Raw struct {
	N      int64 // Int: the version; Timestamp: microseconds since 1970
	U      [16]byte
	Values []any // of Columns, in their order, as the caller gave them or as they were read
	Sent   []any // the same, as the server compares them
	Void   bool  // it was read, and is NULL
}

// Spec is what a table was described by.
type Spec struct {
	Table   string // as the user gave it
	From    string // the same, quoted
	Key     string
	Kind    Kind
	First   int64    // of Int: the version of a new row, 0 or 1
	Columns []string // of the version; several for Columns alone
}

// Class is what kind of values a column has, as far as comparing them goes.
type Class uint8

// The classes of columns.
const (
	Inexact Class = iota // can't be compared exactly: floats, JSON, what is not known
	Integer
	Decimal
	Boolean
	Text
	Bytes
	Date
	DateTime // without a time zone
	Instant  // with one
	Identifier
)

// Column is what the server says of a column.
type Column struct {
	Name      string // as the table spells it
	Type      string // as it stands in a CAST, or in an error
	Declared  string // the type that the table declares: Type, or a domain over it; empty on MySQL and MariaDB
	Class     Class
	Own       bool   // the type is not one of the server's
	Home      string // the quoted schema of the type's operators; empty on MySQL and MariaDB
	List      bool   // an array
	Padded    bool   // of fixed length
	Nullable  bool
	Precision int    // digits of a second
	Max       uint64 // of an integer
	Auto      bool   // a zero makes a number of its own
	UUID      bool   // it can keep the version UUID
	Zoned     bool   // its times depend on the session's time zone
}

// Facts are what the server says of a table.
type Facts struct {
	All     map[string]Column // by name, folded as the server compares names; none: there is no such table.
	Index   string            // the one by which the key is unique; empty: it is not.
	Rows    string            // the type of its rows; empty on MySQL and MariaDB.
	MaxText int               // bytes that a statement may have; 0: no bound is known.
	Odd     string            // why no unique index distinguishes rows of it; empty: one does.

	Location *time.Location // of the times that the driver of MySQL and MariaDB reads and sends
}

// Plan is a table that was found good for use.
type Plan struct {
	Spec
	Facts
	KeyColumn Column
	Token     []Column // those of the version
}

// Op is what a statement does.
type Op uint8

// The statements. Those that end in Any take every version.
const (
	Update Op = iota + 1
	UpdateAny
	Delete
	DeleteAny
	Insert
	Many
	ManyAll // or nothing
)

// Stmt is a statement, made once for the columns that it sets.
type Stmt struct {
	Op      Op
	Text    string
	Columns []Column // in the order of their names
	Names   []string // of the same, as the caller spells them
}

// Sets reports whether the statement sets a column.
func (s *Stmt) Sets(column string) bool {
	return slices.ContainsFunc(s.Columns, func(c Column) bool { return c.Name == column })
}

// TakenError is for an insert that a unique index refuses, if the server does not say for certain
// which one.
type TakenError struct{ Err error }

func (e *TakenError) Error() string { return e.Err.Error() }

func (e *TakenError) Unwrap() error { return e.Err }

// AlteredError is of a statement that wrote nothing, because a column has another type than Inspect
// found.
type AlteredError struct{ Err error }

func (e *AlteredError) Error() string { return "the type of a column has changed: " + e.Err.Error() }

func (e *AlteredError) Unwrap() error { return e.Err }

// SuppressedError is of a statement that wrote nothing, because a trigger kept a row from being
// written.
type SuppressedError struct {
	Place int // of the row, if there are several
	Err   error
}

func (e *SuppressedError) Error() string { return e.Err.Error() }

func (e *SuppressedError) Unwrap() error { return e.Err }

// Row is one that is to be written.
type Row struct {
	Key      any
	Expected Raw
	Next     Raw // a UUID that is to be written
	Set      map[string]any
}

// Found is what became of a Row.
type Found struct {
	Exists  bool
	Written bool
	Held    bool // it could have been written, and was not: for the sake of others, or it was suppressed
	Version Raw  // what it was written with, or what was found

	Err error // of a row that was missing at first: of reading it or writing it again; the core sets it
}

// Dialect is how a database writes names and types.
type Dialect struct {
	Quote           string                   // the sign around names
	Fold            func(name string) string // how names are compared
	Timestamp, UUID string                   // how the columns of these versions are made

	// MissesRows: Many may miss a row that another transaction deletes and inserts anew while Many
	// waits for it: the new row is not in the snapshot of the statement.
	MissesRows bool
}

// Driver runs statements on DB.
type Driver[DB any] interface {
	Dialect() Dialect

	// Inspect asks the server for a table.
	Inspect(ctx context.Context, db DB, s Spec) (Facts, error)
	// Twins counts, up to two, the rows of a key that is not unique.
	Twins(ctx context.Context, db DB, p *Plan, key any) (int64, error)
	// Key makes a key of what the server compares it with, or says why it can't be compared.
	Key(c Column, key any) (any, error)
	// Value is the same for a value of Columns that is expected.
	Value(c Column, value any) (any, error)

	// Text makes a statement. Those of several rows may be made later.
	Text(p *Plan, op Op, set []Column) string
	// Write runs a statement, and returns how many rows it hit, and the new version.
	Write(ctx context.Context, db DB, p *Plan, s *Stmt, r Row) (rows int64, next Raw, err error)
	// Many writes rows that are at the versions expected. Ambiguous: two of the keys mean one row,
	// and nothing was written.
	Many(ctx context.Context, db DB, p *Plan, s *Stmt, rows []Row) (found []Found, ambiguous bool, err error)
	// Read reads a row's version. Latest: as it is now, where the transaction would see it as it
	// was.
	Read(ctx context.Context, db DB, p *Plan, key any, latest bool) (version Raw, exists bool, err error)

	// Class is that of an error of one of these statements, which are never the caller's. It is not
	// known of an argument that can't be sent, and of a transaction that has ended.
	Class(ctx context.Context, wrote bool, err error) (is sqlerr.Class, known bool)
}

// Describe makes a new *optimistic.Table[V, DB] the description of a table, whose statements are
// those of a Driver[DB]. version is an optimistic.Version[V]. Package optimistic sets it at
// initialization; package link, which can name these types, is for its callers.
var Describe func(table, driver any, name, key string, version any) error
