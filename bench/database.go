package bench

import (
	"context"
	"database/sql"
	"errors"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // migrations take a *sql.DB

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

// database makes a database with dblock's tables, which is dropped when the board is closed.
func (b *board) database(ctx context.Context) (dsn string, err error) {
	dsn, drop, err := b.server.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	if b.server.PID() == 0 { // a server of our own goes with all that is in it
		b.undo = append(b.undo, func() error { return drop(context.WithoutCancel(ctx)) })
	}
	driver := "mysql"
	if b.kind == devdb.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "", err
	}
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return dsn, errors.Join(err, db.Close())
}

// dir is where a scenario may write files: where the server's data lies, if it is our own.
func (b *board) dir() string {
	if dir := b.server.Dir(); dir != "" {
		return dir
	}
	return os.TempDir()
}
