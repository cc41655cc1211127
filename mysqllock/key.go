package mysqllock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/dblock-go/dblock/internal/keyname"
)

// NameOf hashes a name within a namespace to what GET_LOCK is given: SHA-256(database NUL namespace
// NUL name), in 64 characters of lower-case hexadecimal. That is as many as MySQL takes, and in a
// spelling that MySQL, which folds case, and MariaDB, which does not, take alike. The database's
// name is in it, in lower case, because a server has one set of locks for all of its databases. All
// programs that use a name get the same, in any language and version, and it never changes. For a
// namespace that contains a NUL, which is rare, the hash is of SHA-256(lengths and texts of all
// three) in hexadecimal.
func NameOf(database, namespace, name string) string {
	sum := sha256.Sum256([]byte(keyname.Join(strings.ToLower(database), namespace, name)))
	return hex.EncodeToString(sum[:])
}
