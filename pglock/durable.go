package pglock

import "context"

// undurable names the setting for which a commit of this driver's sessions may be gone after a
// crash of the server; empty: none.
func (d *leaseDriver) undurable(ctx context.Context) (setting string, err error) {
	s, err := d.q.Durability(ctx, d.db)
	switch {
	case err != nil:
		return "", err
	case s.Fsync != "on":
		return "fsync = " + s.Fsync, nil
	case s.SynchronousCommit == "off":
		return "synchronous_commit = off", nil
	}
	return "", nil
}
