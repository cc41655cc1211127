// Package keyname joins the parts of a name to one text that is hashed to a lock's number or name.
package keyname

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

const separator = "\x00"

// Join returns the parts with a NUL between each two. Different parts give different texts: if a
// part other than the last contains a NUL itself, the text is a hash of the parts and their
// lengths, in hexadecimal. It has no NUL, so it is never that of other parts.
func Join(parts ...string) string {
	if !strings.Contains(strings.Join(parts[:len(parts)-1], ""), separator) {
		return strings.Join(parts, separator)
	}
	var all []byte
	for _, part := range parts {
		all = append(binary.BigEndian.AppendUint64(all, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:])
}
