package mysqllock

import (
	"context"
	"fmt"
)

// undurable names the setting for which a commit may be gone after a crash of the server; empty:
// none.
func (d *leaseDriver) undurable(ctx context.Context) (setting string, err error) {
	s, err := d.q.Durability(ctx, d.db.On(d.db))
	switch {
	case err != nil:
		return "", err
	case s.FlushLog != 1 && s.FlushLog != 3: // MariaDB flushes twice with 3
		return fmt.Sprintf("innodb_flush_log_at_trx_commit = %d", s.FlushLog), nil
	case s.LogBin != 0 && s.SyncBinlog != 1: // a commit is what the binary log says after a crash
		return fmt.Sprintf("sync_binlog = %d", s.SyncBinlog), nil
	}
	return "", nil
}
