package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// CheckSearchPath refuses a search_path that names pg_catalog after another schema. The server then
// prefers operators, functions and types of that schema, and other roles may be able to make such.
func CheckSearchPath(path string) error {
	if slices.Index(SplitSearchPath(path), "pg_catalog") <= 0 {
		return nil
	}
	return &UnusableError{Reason: "search_path = " + path + ", along which the server prefers operators and functions of another schema to " +
		"those of pg_catalog: take pg_catalog out of it, or put it first, in the connection string and in what SET, ALTER ROLE and " +
		"ALTER DATABASE have set"}
}

// CheckConnPath is CheckSearchPath for a connection. Postgres 18 reports changes of the path. Older
// servers are asked, by a statement that names no operator and no function.
func CheckConnPath(ctx context.Context, conn *pgconn.PgConn) error {
	path := conn.ParameterStatus("search_path")
	if path == "" {
		results, err := conn.Exec(ctx, "SHOW search_path").ReadAll()
		if err != nil {
			return err
		}
		if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1 {
			return errors.New("dblock: the server does not say its search_path: is it Postgres?")
		}
		path = string(results[0].Rows[0][0])
	}
	return CheckSearchPath(path)
}

// SplitSearchPath returns the names in a search_path as the server reads them: without quotes, and
// in lower case if they have none.
func SplitSearchPath(path string) []string {
	const space = " \t\n\r\f\v"
	var names []string
	for path = strings.Trim(path, space); path != ""; path = strings.TrimLeft(path, ","+space) {
		var name string
		if path[0] == '"' {
			name, path = cutQuoted(path[1:])
		} else {
			end := strings.IndexAny(path, ","+space)
			if end < 0 {
				end = len(path)
			}
			name, path = lower(path[:end]), path[end:]
		}
		names = append(names, name)
	}
	return names
}

// cutQuoted cuts a name at its closing quote. A quote within it is doubled.
func cutQuoted(text string) (name, rest string) {
	for {
		part, after, _ := strings.Cut(text, `"`)
		name += part
		if !strings.HasPrefix(after, `"`) {
			return name, after
		}
		name, text = name+`"`, after[1:]
	}
}

// lower is for ASCII alone, as the server does it in UTF8.
func lower(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}
