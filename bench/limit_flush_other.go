//go:build !linux

package bench

import "os"

// fdatasync is the whole flush here, down to the medium; Go has no other one.
func fdatasync(f *os.File) error { return f.Sync() }
