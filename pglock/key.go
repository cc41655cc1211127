package pglock

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dblock-go/dblock/internal/keyname"
)

// Key names an advisory lock of Postgres: a number, within one database. Programs that share locks
// with others, which use numbers of their own, convert those: Key(42).
type Key int64

// KeyOf hashes a name within a namespace: the first 8 bytes of SHA-256(namespace NUL name),
// big-endian. So all programs that use a name get the same number, in any language and version, and
// it never changes. Of a million names no two share a number, but for a chance of 3 in 100 million;
// those that do wait for each other, and nothing worse. For a namespace that contains a NUL, which
// is rare, the hash is of SHA-256(lengths and texts of both) in hexadecimal.
func KeyOf(namespace, name string) Key {
	sum := sha256.Sum256([]byte(keyname.Join(namespace, name)))
	return Key(binary.BigEndian.Uint64(sum[:8])) // all 64 bits are the key; the sign says nothing
}
