package answers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/migrations"
)

// RunMigrationAnswers replaces the server's answers while a schema is migrated.
func RunMigrationAnswers(t *testing.T, kind devdb.Kind) {
	Run(t, kind, []User{{"migrations", func(ctx context.Context, x *Trial) error { return useMigrations(ctx, x, kind) }}})
}

var answersSchemas int

func useMigrations(ctx context.Context, x *Trial, kind devdb.Kind) error {
	answersSchemas++
	name := fmt.Sprintf("answers_%d_%d", time.Now().UnixNano(), answersSchemas)
	what := "DATABASE "
	if kind == devdb.Postgres {
		what = "SCHEMA "
	}
	if _, err := x.DB.ExecContext(ctx, "CREATE "+what+name); err != nil {
		return err
	}
	drop := "DROP " + what + name
	if kind == devdb.Postgres {
		drop += " CASCADE"
	}
	defer func() { _, _ = x.DB.ExecContext(context.WithoutCancel(ctx), drop) }()
	db, err := suite.ConnectOn(kind, x.DSN, &faultconn.Dialer{})
	if err != nil {
		return err
	}
	defer db.Close()
	o := migrations.Options{Schema: name}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = migrations.Up(bounded, db, o)
	x.Told(err)
	_, err = migrations.Status(bounded, db, o)
	x.Told(err)
	x.Heal()
	return x.Again(ctx, "migrating", func(ctx context.Context) error {
		if _, err := migrations.Up(ctx, db, o); err != nil {
			return err
		}
		all, err := migrations.Status(ctx, db, o)
		for _, m := range all {
			if !m.Applied {
				err = errors.Join(err, fmt.Errorf("%d is not applied", m.Version))
			}
		}
		return err
	})
}
