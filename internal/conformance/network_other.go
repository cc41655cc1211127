//go:build !linux

package conformance

import "testing"

// Networks that can be cut are Linux'.
func (e Session) runCut(*testing.T) {}

func (e Lease) runCut(*testing.T) {}
