//go:build unix && !linux && !solaris && !aix

package guardian

import (
	"os"
	"syscall"
)

// self is this program.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func dieWithParent(*syscall.SysProcAttr) {}

func adopt() bool { return false }

func (g *guarded) family() []int { return nil }
