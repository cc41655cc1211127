//go:build !unix

package bench

import "os/exec"

// killWithChildren leaves it at the program itself: there is no group to kill.
func killWithChildren(*exec.Cmd) {}
