package postgres

import (
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// Product is what speaks Postgres' protocol.
type Product string

// The products that are distinguished. PostgreSQL stands for its hosted forms, too.
const (
	PostgreSQL  Product = "PostgreSQL"
	Citus       Product = "Citus" // the extension is there
	CockroachDB Product = "CockroachDB"
	YugabyteDB  Product = "YugabyteDB"
	Greenplum   Product = "Greenplum"
	Redshift    Product = "Amazon Redshift"
)

// Known reports that Postgres itself is inside, with all its functions and settings.
func (p Product) Known() bool { return p == PostgreSQL || p == Citus }

// productOf reads the text of version().
func productOf(version string) Product {
	for sign, product := range map[string]Product{
		"CockroachDB": CockroachDB, "-YB-": YugabyteDB, "YugabyteDB": YugabyteDB, "Greenplum": Greenplum, "Redshift": Redshift,
	} {
		if strings.Contains(version, sign) {
			return product
		}
	}
	return PostgreSQL
}

// SessionLocks is nil if advisory locks of a session exclude all other sessions that ask for
// them by this DSN. Else the error matches dblock.ErrUnsupported, and says what does not exclude
// there and what to use instead. That it is nil proves nothing of a second primary, which a
// failover may have left.
func (s *Server) SessionLocks() error {
	switch {
	case s.Product == Citus:
		return refuse("on Citus an advisory lock is known to the one node that was asked, and a session on another node gets it too: " +
			"use NewLeaseLocker, with tables that one node has")
	case s.Product != PostgreSQL:
		return refuse(fmt.Sprintf("%s is not known to keep sessions apart by advisory locks: use a PostgreSQL server", s.Product))
	case s.Standby:
		return refuse("this server is a standby: it grants an advisory lock that is held on the primary: connect to the primary " +
			"(target_session_attrs=read-write), and again after a failover")
	case s.Pooled:
		return refuse("there is a pooler between this connection and the server: in transaction mode two clients share one session, " +
			"and both get the lock: connect directly, or use NewLeaseLocker, or LockTx")
	}
	return nil
}

func refuse(why string) error {
	return fmt.Errorf("%w: session locks: %s", dblock.ErrUnsupported, why)
}
