package mysqllock

import (
	"context"
	"fmt"
)

// undurable names the setting for which a commit may be gone after a crash of the server; empty: none.
func (e *leaseDriver) undurable(ctx context.Context) (setting string, err error) {
	d, err := e.q.Durability(ctx, e.db.On(e.db))
	switch {
	case err != nil:
		return "", err
	case d.FlushLog != 1 && d.FlushLog != 3: // MariaDB flushes twice with 3
		return fmt.Sprintf("innodb_flush_log_at_trx_commit = %d", d.FlushLog), nil
	case d.LogBin != 0 && d.SyncBinlog != 1: // a commit is what the binary log says after a crash
		return fmt.Sprintf("sync_binlog = %d", d.SyncBinlog), nil
	}
	return "", nil
}
