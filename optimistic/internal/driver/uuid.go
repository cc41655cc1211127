package driver

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// FormatUUID is u as servers write it, in lower case with dashes.
func FormatUUID(u [16]byte) string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ParseUUID reads what FormatUUID writes, in upper case too.
func ParseUUID(s string) (u [16]byte, err error) {
	plain := strings.ReplaceAll(s, "-", "")
	if n, err := hex.Decode(u[:], []byte(plain[:min(len(plain), 32)])); err != nil || n != 16 || len(plain) != 32 {
		return u, fmt.Errorf("%q is no UUID", s)
	}
	return u, nil
}
