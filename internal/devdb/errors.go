package devdb

import "fmt"

// NotFoundError says that no server of a kind is to be had, and every way to get one.
type NotFoundError struct{ Kind Kind }

func (e *NotFoundError) Error() string {
	if e.Kind == Postgres {
		return "no postgres server found. Do one of these: set " + envPostgresURL + " to a running server; " +
			"set " + envPostgresBin + " to the folder that holds postgres and initdb; " +
			"install one (Debian and Ubuntu: scripts/servers.sh; Fedora: dnf install postgresql-server; " +
			"macOS: brew install postgresql@17); fetch one with scripts/fetch-servers.sh; " +
			"for the tests, start Docker"
	}
	return fmt.Sprintf("no %[1]s server found. Do one of these: set %[2]s to a running %[1]s server; "+
		"set %[3]s to a %[4]s binary; install one (Debian and Ubuntu: scripts/servers.sh brings MariaDB; "+
		"Fedora: dnf install %[1]s-server; macOS: brew install %[1]s); fetch one with scripts/fetch-servers.sh; "+
		"for the tests, start Docker", e.Kind, envMySQLDSN, envMySQLD, daemonName(e.Kind))
}

// DSNError says that a connection string can't be read or does not lead to a usable server. Its
// text never holds the string itself, which may hold a password.
type DSNError struct {
	Var string // the environment variable or flag it came from; "" when the caller knows
	Err error
}

func (e *DSNError) Error() string {
	if e.Var == "" {
		return e.Err.Error()
	}
	return e.Var + ": " + e.Err.Error()
}

func (e *DSNError) Unwrap() error { return e.Err }

func daemonName(kind Kind) string {
	if kind == MariaDB {
		return "mariadbd"
	}
	return "mysqld"
}
