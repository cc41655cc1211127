package devdb

import (
	"context"
	"fmt"
)

// Kind names a product.
type Kind string

// The products that Start knows.
const (
	Postgres Kind = "postgres"
	MariaDB  Kind = "mariadb"
	MySQL    Kind = "mysql"
)

// Options of Start. The zero value starts a fast server that says nothing.
type Options struct {
	// Durable keeps every acknowledged commit on the disk (demo, benchmarks). Without it the
	// server trades durability for speed (tests).
	Durable bool

	// Replicated lets testdb.StartReplica replicate the server. It implies Durable.
	Replicated bool

	// Args are further arguments of a server that is started from local binaries, for tests of what
	// a setting does. The server does without them where it is given.
	Args []string

	// Logf gets one line that names the server taken and its version; nil discards it.
	Logf func(format string, args ...any)

	// Fallback is asked when neither a DSN nor a local binary gave a server; nil is none.
	Fallback func(ctx context.Context, kind Kind) (*Server, error)
}

// Start gives a running server of the kind asked for. ctx bounds the start, not the server's life:
// that ends with Close. When there is no server to be had the error is a *NotFoundError.
func Start(ctx context.Context, kind Kind, o Options) (*Server, error) {
	if kind != Postgres && kind != MariaDB && kind != MySQL {
		return nil, fmt.Errorf("devdb: unknown kind of server %q: use postgres, mariadb or mysql", kind)
	}
	s, err := find(ctx, kind, o)
	if err != nil {
		return nil, err
	}
	if o.Logf != nil {
		o.Logf("%s", s.describe())
	}
	return s, nil
}

func find(ctx context.Context, kind Kind, o Options) (*Server, error) {
	s, err := fromDSN(ctx, kind)
	if s != nil || err != nil {
		return s, err
	}
	bin, err := findBinaries(ctx, kind)
	if err != nil {
		return nil, err
	}
	if bin != nil {
		o.Durable = o.Durable || o.Replicated
		if o.Replicated && kind != Postgres {
			o.Args = append(replicaArgs(kind, 1), o.Args...)
		}
		return startLocal(ctx, bin, o.Durable, o.Args...)
	}
	if o.Fallback != nil {
		return o.Fallback(ctx, kind)
	}
	return nil, &NotFoundError{Kind: kind}
}

// Available lists the kinds that Start could give from a DSN or from local binaries. A DSN that
// can't be read or reached counts, so that Start is asked and says what is wrong with it.
func Available(ctx context.Context) []Kind {
	var kinds []Kind
	dsnKind, _ := mysqlDSNKind(ctx)
	for _, k := range []Kind{Postgres, MariaDB, MySQL} {
		if k == Postgres && postgresURL() != "" || k == dsnKind {
			kinds = append(kinds, k)
			continue
		}
		if bin, err := findBinaries(ctx, k); bin != nil || err != nil {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// MySQLFamily says which of MariaDB and MySQL this machine offers first: the kind of the server at
// DBLOCK_MYSQL_DSN, else of the binary at DBLOCK_MYSQLD, else MariaDB if it is installed, else
// MySQL. The error is a *NotFoundError when there is neither.
func MySQLFamily(ctx context.Context) (Kind, error) {
	if k, err := mysqlDSNKind(ctx); k != "" || err != nil {
		return k, err
	}
	if k, err := mysqldKind(ctx); k != "" || err != nil {
		return k, err
	}
	for _, k := range []Kind{MariaDB, MySQL} {
		if bin, err := findBinaries(ctx, k); bin != nil || err != nil {
			return k, err
		}
	}
	return "", &NotFoundError{Kind: MariaDB}
}
