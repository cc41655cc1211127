package pglock

import "context"

// undurable names the setting for which a commit of this engine's sessions may be gone after a crash of the server;
// empty: none.
func (e *engine) undurable(ctx context.Context) (setting string, err error) {
	d, err := e.q.Durability(ctx, e.db)
	switch {
	case err != nil:
		return "", err
	case d.Fsync != "on":
		return "fsync = " + d.Fsync, nil
	case d.SynchronousCommit == "off":
		return "synchronous_commit = off", nil
	}
	return "", nil
}
