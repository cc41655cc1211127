// Package sqlconn looks at connections of database/sql, and closes them.
package sqlconn

import (
	"database/sql"
	"database/sql/driver"
	"time"
)

// longestClose is how long Discard waits for database/sql to close a connection.
const longestClose = 500 * time.Millisecond

// Discard closes a connection, which its pool must not get back. End closes what is below it; nil:
// the driver's Close does. An open transaction, or open rows, of the host's code keep the
// connection in use. Discard then ends it at the server and does not wait for them.
func Discard(conn *sql.Conn, end func(driverConn any)) {
	var own driver.Conn
	_ = conn.Raw(func(c any) error {
		own, _ = c.(driver.Conn)
		if end != nil {
			end(c)
		}
		return nil
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the only error is that it is closed already
	}()
	timer := time.NewTimer(longestClose)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		if own != nil && end == nil {
			_ = own.Close()
		}
	}
}

// IsValid reports whether a connection can take a statement: it is not closed, and all rows were
// read.
func IsValid(conn *sql.Conn) (valid bool) {
	_ = conn.Raw(func(c any) error {
		v, ok := c.(driver.Validator)
		valid = !ok || v.IsValid()
		return nil
	})
	return valid
}
