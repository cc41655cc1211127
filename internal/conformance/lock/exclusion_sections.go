package lock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// sections are critical sections that the operating system judges: entering one locks its files without waiting. If that
// fails, another holder is inside.
type sections struct{ dir string }

var errOverlap = errors.New("another holder is in the section")

// section is one that was entered.
type section []*os.File

// leave unlocks its files.
func (s section) leave() {
	for _, f := range s {
		_ = f.Close()
	}
}

// enter enters the section of a lock: of all its keys, or of as many permits as it holds.
func (j sections) enter(o exclusionOp) (section, error) {
	if o.mode == dblock.Permits {
		return j.enterPermits(o)
	}
	var s section
	for _, key := range o.keys {
		if err := j.lock(&s, key, o.mode == dblock.Shared); err != nil {
			s.leave()
			return nil, err
		}
	}
	return s, nil
}

// lock adds a locked file to a section.
func (j sections) lock(s *section, name string, shared bool) error {
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	locked, err := suite.Flock(f, shared, false)
	if err != nil || !locked {
		return errors.Join(err, f.Close(), errOverlap)
	}
	*s = append(*s, f)
	return nil
}

// enterPermits locks as many of a semaphore's files as there are permits. One process at a time looks for them, so that
// whatever is free stays free meanwhile.
func (j sections) enterPermits(o exclusionOp) (section, error) {
	turn, err := os.OpenFile(filepath.Join(j.dir, o.keys[0]+".turn"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	if _, err := suite.Flock(turn, false, true); err != nil {
		return nil, err
	}
	var s section
	for n := 0; n < exclusionLimit && len(s) < o.permits; n++ {
		if err := j.lock(&s, fmt.Sprint(o.keys[0], ".permit", n), false); err != nil && !errors.Is(err, errOverlap) {
			s.leave()
			return nil, err
		}
	}
	if len(s) < o.permits {
		s.leave()
		return nil, errOverlap
	}
	return s, nil
}
