package mysql

import (
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// Product is what speaks ProductMySQL's protocol.
type Product string

// The products that dblock distinguishes. ProductMySQL and ProductMariaDB stand for their forks and
// hosted forms, too.
const (
	ProductMySQL   Product = "MySQL"
	ProductMariaDB Product = "MariaDB"
	ProductTiDB    Product = "TiDB"
	ProductVitess  Product = "Vitess"
)

// Known reports whether MySQL or MariaDB itself is inside, with all its functions and
// variables.
func (p Product) Known() bool { return p == ProductMySQL || p == ProductMariaDB }

// productOf reads VERSION() and @@version_comment.
func productOf(version, comment string) Product {
	both := strings.ToLower(version + " " + comment)
	switch {
	case strings.Contains(both, "tidb"):
		return ProductTiDB
	case strings.Contains(both, "vitess"):
		return ProductVitess
	case strings.Contains(strings.ToLower(version), "mariadb"): // a comment may say anything
		return ProductMariaDB
	default:
		return ProductMySQL
	}
}

// SessionLocks is nil if named locks (GET_LOCK) exclude all other sessions that ask for them by
// this DSN. Else the error matches dblock.ErrUnsupported, and says what does not exclude there and
// what to use instead. That it is nil proves nothing of a second primary, which a failover may have
// left, nor of a proxy that does not show.
func (s *Server) SessionLocks() error {
	switch {
	case s.Product == ProductTiDB:
		// One TiDB server was seen to keep sessions apart. What several do together was not, and
		// IS_USED_LOCK returns no holder.
		return refuse("on TiDB GET_LOCK does not name the holder of a lock, and is not known to exclude across servers: use a MySQL or MariaDB server")
	case s.Product == ProductVitess:
		return refuse("Vitess gives a named lock to others once its session was idle for 30 s, while the holder still believes in it: " +
			"use a MySQL or MariaDB server")
	case s.Galera:
		return refuse("this server is a node of a Galera cluster: a named lock is known to the one node that was asked, and a session on " +
			"another node gets it too: use NewLeaseLocker, and send all to one node")
	case s.Group:
		return refuse("this server is a member of a replication group: a named lock is known to the one member that was asked, and a " +
			"session on another member gets it too: use NewLeaseLocker, and send all to one member")
	case s.ReadOnly:
		return refuse("this server is read-only, a replica as a rule: it grants a named lock that is held on the primary: " +
			"connect to the primary")
	case s.Proxied:
		return refuse("there is a proxy between this connection and the server: it may give the session to others, or send statements to " +
			"several servers: connect directly, or use NewLeaseLocker")
	}
	return nil
}

func refuse(why string) error {
	return fmt.Errorf("%w: session locks: %s", dblock.ErrUnsupported, why)
}
