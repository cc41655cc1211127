package devdb

import (
	"errors"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The drivers' own parse errors quote pieces of the string they failed on. A misread string may
// show its password in any piece, so these fixed texts stand in for them.
var (
	errPostgresURL = errors.New("not readable as a Postgres URL: write postgres://user:password@host:5432/database " +
		"and percent-encode special characters in the password")
	errPostgresHost = errors.New("names a host with an @ in it: write the @ of a user or a password as %40")
	errMySQLDSN     = errors.New("not readable as a MySQL DSN: write user:password@tcp(host:3306)/database; " +
		"the part after ? needs percent-encoding, the password does not")
	errMySQLURL = errors.New("is a mysql:// URL, which the Go driver does not read: " +
		"write user:password@tcp(host:3306)/database")
	errEmpty = errors.New("is empty: give the connection string of a running server")
)

// ParsePostgres reads a Postgres URL (or libpq's keyword=value form). The error is a *DSNError and
// never holds the password. An @ in the password that is not encoded ends it, and its rest would be
// shown as a host or a database.
func ParsePostgres(dsn string) (*pgxpool.Config, error) {
	if strings.TrimSpace(dsn) == "" {
		return nil, &DSNError{Err: errEmpty}
	}
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, &DSNError{Err: errPostgresURL}
	}
	hosts := c.ConnConfig.Host
	for _, f := range c.ConnConfig.Fallbacks {
		hosts += f.Host
	}
	url, _, _ := strings.Cut(dsn, "?")
	if strings.Contains(hosts, "@") || strings.Contains(url, "://") && strings.Count(url, "@") > 1 {
		return nil, &DSNError{Err: errPostgresHost}
	}
	return c, nil
}

// ParseMySQL reads a DSN of the Go MySQL driver. The error is a *DSNError and never holds the
// password.
func ParseMySQL(dsn string) (*mysql.Config, error) {
	switch {
	case strings.TrimSpace(dsn) == "":
		return nil, &DSNError{Err: errEmpty}
	case strings.HasPrefix(dsn, "mysql://"), strings.HasPrefix(dsn, "mariadb://"):
		return nil, &DSNError{Err: errMySQLURL}
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, &DSNError{Err: errMySQLDSN}
	}
	// Where the @ is missing, the driver takes user and password for the name of a network, and
	// would show it when it dials.
	if c.Net != "tcp" && c.Net != "unix" {
		return nil, &DSNError{Err: errMySQLDSN}
	}
	return c, nil
}

// postgresWithDatabase is the same connection string for another database of that server.
func postgresWithDatabase(dsn, database string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " dbname=" + database // in keyword form the last one counts
	}
	u.Path = "/" + database
	q := u.Query()
	for _, k := range []string{"dbname", "database"} {
		q.Del(k) // a query parameter would win over the path
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// mysqlWithDatabase keeps only what is needed to reach the server: code under test must not depend
// on the options of a DSN, so it gets one without any.
func mysqlWithDatabase(c *mysql.Config, database string) string {
	n := mysql.NewConfig()
	n.User, n.Passwd, n.Net, n.Addr, n.DBName = c.User, c.Passwd, c.Net, c.Addr, database
	n.TLSConfig, n.ServerPubKey = c.TLSConfig, c.ServerPubKey
	n.AllowCleartextPasswords = c.AllowCleartextPasswords
	return n.FormatDSN()
}
