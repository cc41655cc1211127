package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	envEngines = "DBLOCK_TEST_ENGINES"
	envDocker  = "DBLOCK_TEST_DOCKER"
)

// Engines are the kinds of server under test: those that DBLOCK_TEST_ENGINES lists, else Postgres
// and one of the MySQL family, each only if this machine can give it. It panics when the
// environment asks for what can't be had: a run that tests less than was asked for must not pass.
func Engines() []devdb.Kind {
	kinds, err := selected()
	if err != nil {
		panic(err)
	}
	return slices.Clone(kinds)
}

var selected = sync.OnceValues(func() ([]devdb.Kind, error) {
	ctx := context.Background()
	if list := os.Getenv(envEngines); list != "" {
		return named(ctx, list)
	}
	var kinds []devdb.Kind
	if can(ctx, devdb.Postgres) {
		kinds = append(kinds, devdb.Postgres)
	}
	family, err := mysqlFamily(ctx)
	switch {
	case err == nil:
		kinds = append(kinds, family)
	case !errors.As(err, new(*devdb.NotFoundError)):
		return nil, err
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("testdb: no database to test with: %w; %w; Docker: %w",
			&devdb.NotFoundError{Kind: devdb.Postgres}, &devdb.NotFoundError{Kind: devdb.MariaDB}, dockerUsable())
	}
	return kinds, nil
})

func named(ctx context.Context, list string) ([]devdb.Kind, error) {
	var kinds []devdb.Kind
	for name := range strings.SplitSeq(list, ",") {
		kind := devdb.Kind(strings.TrimSpace(name))
		switch kind {
		case devdb.Postgres, devdb.MariaDB, devdb.MySQL:
		default:
			return nil, fmt.Errorf("testdb: %s=%s: %q is none of postgres, mariadb, mysql", envEngines, list, name)
		}
		if !can(ctx, kind) {
			return nil, fmt.Errorf("testdb: %s asks for %s: %w", envEngines, kind, &devdb.NotFoundError{Kind: kind})
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// mysqlFamily is MariaDB where only Docker can give one, because nothing else decides.
func mysqlFamily(ctx context.Context) (devdb.Kind, error) {
	for _, k := range []devdb.Kind{devdb.MariaDB, devdb.MySQL} {
		if list := os.Getenv(envEngines); strings.Contains(list, string(k)) {
			return k, nil
		}
	}
	kind, err := devdb.MySQLFamily(ctx)
	if errors.As(err, new(*devdb.NotFoundError)) && dockerUsable() == nil {
		return devdb.MariaDB, nil
	}
	return kind, err
}

func can(ctx context.Context, kind devdb.Kind) bool {
	return slices.Contains(available(ctx), kind) || dockerUsable() == nil
}

var availableOnce = sync.OnceValue(func() []devdb.Kind { return devdb.Available(context.Background()) })

func available(context.Context) []devdb.Kind { return availableOnce() }
