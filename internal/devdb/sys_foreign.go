//go:build !unix || solaris || aix

package devdb

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Here a server has to be given by its DSN: starting one takes process groups and file locks. The
// package still compiles, because the command-line tool runs here.
var (
	errLocked  = errors.New("locked by another process")
	errForeign = errors.New("servers can't be started on this operating system: set " +
		envPostgresURL + " or " + envMySQLDSN + " to a running one")
)

func holdLock(string) (*os.File, error)       { return nil, errForeign }
func ownedByUs(os.FileInfo) bool              { return false }
func giveToServer(string) error               { return errForeign }
func asServer(*exec.Cmd, syscall.Signal)      {}
func signalProcess(pid int, _ syscall.Signal) {}
func alive(int) bool                          { return false }
func killTree(int) []int                      { return nil }
func freezeTree(int) error                    { return errForeign }
func thawTree(int)                            {}
func killOrphan(string)                       {}
func removeSegment(int)                       {}
