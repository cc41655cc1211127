package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// QuotePostgres quotes a name of a schema, table or role for Postgres.
func QuotePostgres(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// QuoteMySQL quotes a name of a database or table for MySQL and MariaDB; also if sql_mode has
// ANSI_QUOTES.
func QuoteMySQL(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// CheckPostgresName refuses what can't name a schema; "" stands for the search_path and is fine.
// Postgres would cut a name of more than 63 bytes short and go on in another schema than was meant.
func CheckPostgresName(name string) error {
	if len(name) > 63 {
		return fmt.Errorf("dblock: schema name %q has %d bytes: Postgres allows 63", name, len(name))
	}
	return checkName(name)
}

// CheckMySQLName refuses what can't name a database; "" stands for the connection's own and is
// fine.
func CheckMySQLName(name string) error {
	if n := utf8.RuneCountInString(name); n > 64 {
		return fmt.Errorf("dblock: database name %q has %d characters: MySQL allows 64", name, n)
	}
	return checkName(name)
}

// checkName also refuses a dot: both engines allow one inside quotes, and a caller that passes one
// has nearly always meant two names.
func checkName(name string) error {
	switch {
	case !utf8.ValidString(name):
		return fmt.Errorf("dblock: schema name %q is not valid UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("dblock: schema name %q contains a control character", name)
	case strings.Contains(name, "."):
		return fmt.Errorf("dblock: schema name %q contains a dot: give the name of the schema alone, unquoted", name)
	case name != "" && strings.TrimSpace(name) == "":
		return fmt.Errorf("dblock: schema name %q is blank", name)
	}
	return nil
}

// Topic returns what a notification on Postgres says of a name: its SHA-256 in hexadecimal. Every
// role of a database can listen there, and the name of a key or of a queue can be a secret. The
// statements in queries/postgres compute the same.
func Topic(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}
