package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/dblock-go/dblock/internal/schema"
)

// versionCmd is `dblock version`.
type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(s streams) error {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintf(s.out, "dblock %s, tables version %d, %s %s/%s\n",
		version, schema.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
