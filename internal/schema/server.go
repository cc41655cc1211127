package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock"
)

// Each engine's oldest version that works. Postgres 13 is past its end of life; MySQL checks CHECK
// constraints since 8.0.16, and they keep stock from going below zero; MariaDB has SKIP LOCKED
// since 10.6.
var (
	oldestPostgres = release{14, 0, 0}
	oldestMySQL    = release{8, 0, 16}
	oldestMariaDB  = release{10, 6, 0}
)

type release [3]int

func (r release) before(other release) bool {
	for i := range r {
		if r[i] != other[i] {
			return r[i] < other[i]
		}
	}
	return false
}

// leading finds a version number at the start: "15.18 (Debian …)", "18beta1", "8.0.36-0ubuntu1".
var leading = regexp.MustCompile(`^(\d+)(?:\.(\d+))?(?:\.(\d+))?`)

func parseRelease(version string) (release, error) {
	found := leading.FindStringSubmatch(version)
	if found == nil {
		return release{}, fmt.Errorf("dblock: server version %q can't be read: it doesn't begin with a number", version)
	}
	var r release
	for i, digits := range found[1:] {
		if digits == "" {
			break
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return release{}, fmt.Errorf("dblock: server version %q can't be read: %w", version, err)
		}
		r[i] = n
	}
	return r, nil
}

// PostgresServer checks a server's version: the text of server_version ("15.18 (Debian …)"), which
// every connection gets without asking, or the number of server_version_num ("150018").
func PostgresServer(version string) error {
	have, err := parseRelease(version)
	if err != nil {
		return err
	}
	if have[0] >= 10_000 {
		have = release{have[0] / 10_000}
	}
	if have.before(oldestPostgres) {
		return &dblock.ServerVersionError{Server: "PostgreSQL", Have: version, Need: "14"}
	}
	return nil
}

// PostgresEncoding checks a database's server_encoding. In another one than UTF8 not every name,
// payload and error text can be stored.
func PostgresEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return fmt.Errorf("%w: the encoding of this database is %s, which cannot store every name and text: %s", dblock.ErrUnsupported, encoding, UseUTF8)
}

// UseUTF8 is what to do if PostgresEncoding refuses a database.
const UseUTF8 = "create a database with ENCODING 'UTF8' TEMPLATE template0 and move the data there"

// MariaDB is what MySQLServer calls that server.
const MariaDB = "MariaDB"

// MySQLServer checks the version of a server of the MySQL family, as VERSION() gives it, and
// returns the product: "MySQL" or "MariaDB". The name is also right if err is a
// *dblock.ServerVersionError.
func MySQLServer(version string) (name string, err error) {
	name, oldest, need := "MySQL", oldestMySQL, "8.0.16"
	number := version
	if strings.Contains(version, "MariaDB") {
		name, oldest, need = MariaDB, oldestMariaDB, "10.6"
		// Old replication clients refused a server above 5, so MariaDB may put this in front.
		number = strings.TrimPrefix(version, "5.5.5-")
	}
	have, err := parseRelease(number)
	if err != nil {
		return "", err
	}
	if have.before(oldest) {
		return name, &dblock.ServerVersionError{Server: name, Have: version, Need: need}
	}
	return name, nil
}
